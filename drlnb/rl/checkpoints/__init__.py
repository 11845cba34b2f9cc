"""Write and read what a training has learnt."""

"""The claims as ratios against named baselines: each module with a ``main`` is one ``drlnb bench NAME``."""

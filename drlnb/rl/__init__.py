"""Which floor learns?  Environments, collectors, learners and evaluation, with no cluster in sight.

Import the module you need (``drlnb.rl.collect``, ``drlnb.rl.learner``): this package loads nothing by itself, so that a
collector process never pays for torch.
"""

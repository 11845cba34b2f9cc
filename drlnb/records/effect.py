"""Name the moments from which a changed setting counts; each setting is declared with one of them."""

__all__ = ["AT_ONCE", "NEXT_GRANT", "NEXT_LOOK", "NEXT_PLACEMENT", "NEXT_ROUND", "NEXT_STEP"]

#: The next decision is made by it.
AT_ONCE = "at once"
#: The pool looks now and then; the look that is due comes by the former value.
NEXT_LOOK = "from the next look on"
#: It goes to a holder with its grant, and stays with it until that lease ends.
NEXT_GRANT = "from the next grant on"
#: A task is placed when an attempt starts or a node of its collectors is lost; by some planners when slots come or go.
NEXT_PLACEMENT = "from the next placement on"
#: A round has one set of settings.
NEXT_ROUND = "from the next round on"
#: What an executor computes already follows the plan that it was sent with.
NEXT_STEP = "from the next training step on"

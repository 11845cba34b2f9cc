"""Planners with weights: trained before, and asked like any other.

Importing this floor gives their names to the decisions.  Who puts a run together, or reads one, imports it; `planning`
does not know it.
"""

import drlnb.learned.batching  # noqa: F401  # registers its planners
import drlnb.learned.placement  # noqa: F401  # likewise

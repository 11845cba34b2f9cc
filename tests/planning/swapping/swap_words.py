"""Profiles of small steps: a chain of three layers that can be worked by hand, and any others."""

from dataclasses import replace

from hypothesis import strategies as st

from drlnb.planning.swapping.profile import (
    BLOCK,
    DERIVE,
    KEEP,
    SavedRow,
    SwapBlock,
    SwapLink,
    SwapPlan,
    SwapProfile,
    Tick,
)

SECOND = Tick(forward_s=(1.0, 0.0), backward_s=(2.0, 0.0))


def row(name, born, *packed, size=10.0, **more):
    more = {"layer_type": "Linear"} | more
    return SavedRow(key=(name, 0), bytes_per_sample=size, born_tick=born, packed_ticks=packed, **more)


def profile(rows, ticks, **more):
    more = {"link": SwapLink.of(10.0), "device_kind": "paper", "shape_key": "net"} | more
    return SwapProfile(rows=tuple(rows), ticks=tuple(ticks), **more)


def chain(n=3, **more):
    """Return a chain: layer i keeps its input of 10 bytes, takes 1 s forward, 2 s backward; a copy takes 1 s."""
    return profile([row(f"l{i}", i - 1, i) for i in range(n)], [SECOND] * n, **more)


def wide(n=6, **more):
    """Return a chain whose rows can be squeezed or derived by turns, with a block around each two layers."""
    kinds = [
        {"squeeze_kind": "mask", "squeeze_left_frac": 0.25},
        {"derive_from": ("l0", 0), "derive_s_per_sample": 0.2},
    ]
    rows = [row("l0", -1, *range(n))] + [
        row(f"l{i}", i - 1, i, **kinds[i % 2], layer_type="ab"[i % 2]) for i in range(1, n)
    ]
    pairs = [(i, i + 1) for i in range(1, n - 1, 2)]
    blocks = [SwapBlock(path=f"b{i}", first_tick=i, last_tick=j, rows=((f"l{j}", 0),)) for i, j in pairs]
    return profile(rows, [SECOND] * n, blocks=tuple(blocks), **more)


def acting(of, **actions):
    """Return the plan that does something with rows, by their first names."""
    return having(SwapPlan.keeping(of), {(name, 0): action for name, action in actions.items()})


seconds = st.floats(0.001, 5.0)
sizes = st.floats(1.0, 100.0)


@st.composite
def profiles(draw, n_rows=6, blocks=True):
    """Return any profile of few ticks."""
    n = draw(st.integers(1, 6))
    ticks = [
        Tick(forward_s=(draw(seconds), 0.0), backward_s=(draw(seconds), 0.0),
             forward_transient_bytes=(draw(sizes), 0.0), backward_transient_bytes=(0.0, draw(sizes)))
        for _ in range(n)
    ]  # fmt: skip
    rows = []
    for i in range(draw(st.integers(1, n_rows))):
        born = draw(st.integers(-1, n - 1))
        packed = sorted(draw(st.sets(st.integers(max(born, 0), n - 1), min_size=1)))
        sources = [each for each in rows if each.packed_ticks[0] <= packed[0]]
        source = draw(st.none() | st.sampled_from(sources)) if sources else None
        squeezable = draw(st.booleans())
        rows.append(row(
            f"r{i}", born, *packed, size=draw(sizes), layer_type=draw(st.sampled_from("abc")),
            consumers=(draw(st.sampled_from(["conv2d", "linear", "relu"])),),
            squeeze_kind="mask" if squeezable else "", squeeze_left_frac=0.25 if squeezable else 1.0,
            derive_from=source and source.key, derive_s_per_sample=draw(seconds),
        ))  # fmt: skip
    parts = []
    first = draw(st.integers(0, n - 1))
    last = draw(st.integers(first, n - 1))
    inside = tuple(each.key for each in rows if first <= each.born_tick and each.packed_ticks[-1] <= last)
    if inside and blocks:
        parts.append(SwapBlock(path="part", first_tick=first, last_tick=last, rows=inside))
    link = SwapLink.of(draw(st.floats(1.0, 1000.0)))
    return profile(rows, ticks, link=link, blocks=tuple(parts), fixed_bytes=draw(sizes))


@st.composite
def planned(draw, actions=None):
    """Return a profile and a plan that can be carried out on it."""
    of = draw(profiles())
    chosen = [each for each in of.blocks if actions is None and draw(st.booleans())]
    inside = {key for each in chosen for key in each.rows}
    kinds = {
        each.key: BLOCK if each.key in inside
        else draw(st.sampled_from([a for a in each.actions if actions is None or a in actions]))
        for each in of.rows
    }  # fmt: skip
    for each in of.rows:
        if kinds[each.key] == DERIVE and kinds[each.derive_from] not in {"keep", "swap"}:
            kinds[each.key] = KEEP
    plan = SwapPlan(profile_key=of.key, keys=tuple(kinds), actions=tuple(kinds.values()),
                    blocks=tuple(each.path for each in chosen))  # fmt: skip
    return of, plan


def having(plan, changes):
    """Return a plan with other actions for some rows."""
    now = {**plan.action_of, **changes}
    return replace(plan, actions=tuple(now[key] for key in plan.keys))

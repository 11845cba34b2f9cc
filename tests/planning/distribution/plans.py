"""Cut versions into ranges, and count what a plan costs."""

from collections import Counter


def cut(total, m):
    """Cut bytes into ranges whose sizes differ by at most one, the larger ones first (seed 001's shards)."""
    size, longer = divmod(total, m)
    return tuple([(i * size + min(i, longer), (i + 1) * size + min(i + 1, longer)) for i in range(m)])


def egress(plan):
    """Return the bytes that each host sends; the first number is the learner's."""
    sent = Counter()
    for send, sender, _ in plan.messages():
        sent[sender] += send.stop - send.start
    return [sent[host] for host in range(-1, plan.n_hosts)]


def ingress(plan):
    """Return the bytes that each host receives; the first number is the learner's."""
    received = Counter()
    for send, _, hop in plan.messages():
        received[hop.host] += send.stop - send.start
    return [received[host] for host in range(-1, plan.n_hosts)]


def depth(plan):
    """Return the most hops that a byte takes."""

    def below(hop):
        return 1 + max(map(below, hop.children), default=0)

    return max((below(send.first) for send in plan.sends), default=0)

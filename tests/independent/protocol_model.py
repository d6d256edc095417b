#!/usr/bin/env python3
"""A model of deletion beside writers, with parity, hot indexes and heals; all orders of all store calls are tried.

One step is one store call. Actors are backups, prunes, prunes that finish dead ones, and heals. Containers `x` and `y`
hold the same chunk, and so does each container that an actor stores. Each container has a companion: its parity or its
hot index. In every state:

1. A container holds the chunk if a reported snapshot needs it.
2. A container that a segment names has its companion.
3. No container comes back that was deleted.

Each rule of the protocol is then left out in turn: some of these must fail. Left out of the model: bases, adoption, lists
of several pages, names that return, marks that cannot be read. The tests of the production code have these.

usage: protocol_model.py [-v]   -v prints the steps to each state that fails
"""

import sys
from typing import NamedTuple

NONE = frozenset()


class World(NamedTuple):
    """What is in the store, and what was said to users."""

    containers: frozenset
    companions: frozenset
    named: frozenset  # containers that segments name
    damaged: frozenset
    snapshots: frozenset
    reported: frozenset
    intents: frozenset  # (owner, containers)
    pending: frozenset  # (owner, containers)
    deleted: frozenset  # all that was ever deleted

    def without_container(self, name):
        return self._replace(containers=self.containers - {name}, deleted=self.deleted | {name})

    def with_new(self, name):
        return self._replace(containers=self.containers | {name})

    def held(self):
        return union(self.intents)

    def doomed(self):
        return union(self.pending)

    def drop_intent(self, owner):
        return self._replace(intents=frozenset(one for one in self.intents if one[0] != owner))


def union(claims):
    return frozenset().union(*(names for _, names in claims))


def fault(world):
    """The promise that is broken, if any."""
    if world.reported and not world.containers:
        return "a reported snapshot lacks its chunk"
    if (world.containers & world.named) - world.companions:
        return "a named container has no companion"
    if world.containers & world.deleted:
        return "a deleted container has come back"
    return None


# An actor yields (world, place, memory) for each thing that it may do next. `rules` are those that are left out.


def backup(me, world, at, memory, rules):
    relied, tries = memory
    if at == "start":
        yield world, "look up", (world.doomed(), tries)
    elif at == "look up":
        usable = world.containers - relied
        for name in sorted(usable):
            yield world, "intent", (frozenset(name.split()), tries)
        if not usable:
            yield world, "store", (NONE, tries)
    elif at == "store":
        new = frozenset(["new" + me])
        if "companion after segment" in rules:
            yield world.with_new(*new), "segment", (new, tries)
        else:
            yield world.with_new(*new), "companion", (new, tries)
    elif at == "companion":
        after = "intent" if "companion after segment" in rules else "segment"
        yield world._replace(companions=world.companions | relied), after, memory
    elif at == "segment":
        after = "companion" if "companion after segment" in rules else "intent"
        yield world._replace(named=world.named | relied), after, memory
    elif at == "intent":
        intents = world.drop_intent(me).intents | {(me, relied)}
        yield world._replace(intents=intents), "pending", memory
    elif at == "pending":
        yield world, "again" if relied & world.doomed() else "list", memory
    elif at == "list":
        is_gone = relied - world.containers and "no second list" not in rules
        yield world, "again" if is_gone else "snapshot", memory
    elif at == "snapshot":
        yield world._replace(snapshots=world.snapshots | {me}), "check", memory
    elif at == "check":
        is_whole = any(owner == me for owner, _ in world.intents) or "no recheck" in rules
        yield world, "report" if is_whole else "pending again", memory
    elif at == "pending again":
        yield world, "withdraw" if relied & world.doomed() else "list again", memory
    elif at == "list again":
        yield world, "withdraw" if relied - world.containers else "report", memory
    elif at == "withdraw":
        yield world._replace(snapshots=world.snapshots - {me}), "again", memory
    elif at == "again":
        if tries < 1:
            yield world, "start", (NONE, tries + 1)
        else:
            yield world, "end", memory
    elif at == "report":
        yield world._replace(reported=world.reported | {me}), "end", memory
    elif at == "end":
        yield world.drop_intent(me), "done", (NONE, 0)


def breaks(world, rules):
    """What a prune may make of intents that it takes for dead."""
    if "patient" not in rules:
        for intent in world.intents:
            yield world._replace(intents=world.intents - {intent})


def sweep(me, world, at, memory, rules):
    """Deletes the companions of what is gone. `memory` is what was listed."""
    listed, old = memory
    if at == "sweep":
        if "sweep lists containers first" in rules:
            yield world, "sweep companions", (NONE, world.containers)
        else:
            yield world, "sweep containers", (world.companions, NONE)
    elif at == "sweep companions":
        yield world, "sweep segments", (world.companions - old, NONE)
    elif at == "sweep containers":
        yield world, "sweep segments", (listed - world.containers, NONE)
    elif at == "sweep segments":
        yield world, "sweep delete", (listed - world.named, NONE)
    elif at == "sweep delete":
        if not listed:
            yield world, "withdraw", (NONE, NONE)
        for name in sorted(listed)[:1]:
            yield world._replace(companions=world.companions - {name}), "sweep delete", (listed - {name}, NONE)


def deletions(me, world, at, memory, rules):
    """What each prune does once it has decided."""
    candidates, entries = memory
    if at == "delete":
        for name in sorted(candidates)[:1]:
            yield world.without_container(name), "delete", (candidates - {name}, entries | {name})
        if not candidates:
            yield world, "clean", memory
    elif at == "clean":
        # Segments are written again without what is gone.
        yield world._replace(named=world.named - entries), "sweep", (NONE, NONE)
    elif at.startswith("sweep"):
        yield from sweep(me, world, at, memory, rules)


def prune(me, world, at, memory, rules):
    candidates, seen = memory
    if at == "start":
        yield world, "choose", (world.containers, world.snapshots)
    elif at == "choose":
        names = sorted(candidates)
        for mask in range(1, 1 << len(names)):
            chosen = frozenset(name for bit, name in enumerate(names) if mask >> bit & 1)
            if not seen or candidates - chosen:
                yield world, "announce", (chosen, NONE)
    elif at == "announce":
        pending = world.pending if "no entry" in rules else world.pending | {(me, candidates)}
        yield world._replace(pending=pending), "others", memory
    elif at == "others":
        is_other = any(owner != me for owner, _ in world.pending) and "no withdrawal" not in rules
        yield world, "withdraw" if is_other else "break", memory
    elif at == "break":
        yield world, "intents", memory
        for other in breaks(world, rules):
            yield other, "break", memory
    elif at == "intents":
        held = NONE if "no intents read" in rules else world.held()
        yield world, "list" if "snapshots first" in rules else "snapshots", (candidates - held, seen)
    elif at == "snapshots":
        yield world, "list", (candidates, world.snapshots)
    elif at == "list":
        if seen and not world.containers - candidates:
            for name in sorted(candidates & world.containers):
                yield world, "delete", (candidates - {name}, NONE)
        else:
            yield world, "delete", (candidates, NONE)
    elif at == "withdraw":
        left = frozenset(entry for entry in world.pending if entry[0] != me)
        yield world._replace(pending=left), "done", (NONE, NONE)
    else:
        yield from deletions(me, world, at, memory, rules)


def finisher(me, world, at, memory, rules):
    """Finishes what other prunes have announced, which may be dead or wake up."""
    candidates, seen = memory
    if at == "start":
        found = union(entry for entry in world.pending if entry[0] != me)
        yield world, "announce" if found else "done", (found, NONE)
    elif at == "announce":
        pending = world.pending if "no own entry" in rules else world.pending | {(me, candidates)}
        yield world._replace(pending=pending), "break", memory
    elif at == "break":
        yield world, "intents", memory
        for other in breaks(world, rules):
            yield other, "break", memory
    elif at == "intents":
        is_held = world.held() & candidates
        yield (world, "leave", memory) if is_held else (world, "snapshots", memory)
    elif at == "snapshots":
        yield world, "list", (candidates, world.snapshots)
    elif at == "list":
        if not seen or world.containers - candidates:
            yield world, "delete", (candidates, NONE)
        elif world.containers & candidates:
            yield world, "move", (candidates, NONE)
        else:
            yield world, "leave", memory
    elif at == "move":
        yield world.with_new("new" + me), "companion", memory
    elif at == "companion":
        yield world._replace(companions=world.companions | {"new" + me}), "segment", memory
    elif at == "segment":
        yield world._replace(named=world.named | {"new" + me}), "delete", memory
    elif at == "leave":
        left = frozenset(entry for entry in world.pending if entry[0] != me)
        yield world._replace(pending=left), "done", (NONE, NONE)
    elif at == "withdraw":
        # Its own entry, and those that it has finished.
        yield world._replace(pending=NONE), "done", (NONE, NONE)
    else:
        yield from deletions(me, world, at, memory, rules)


def heal(me, world, at, memory, rules):
    """Writes back container x, then its companion: parity that is made again, or a hot index."""
    x = frozenset("x")
    if at == "start":
        yield world, "done" if x & world.doomed() else "intent", memory
    elif at == "intent":
        intents = world.intents if "no intent of a heal" in rules else world.intents | {(me, x)}
        yield world._replace(intents=intents), "pending", memory
    elif at == "pending":
        yield world, "end" if x & world.doomed() else "list", memory
    elif at == "list":
        yield world, "write" if x <= world.containers else "end", memory
    elif at == "write":
        # A store with conditions writes only in place of what is there.
        if "blind write" in rules:
            yield world, "write blindly" if x <= world.containers else "end", memory
        elif x <= world.containers:
            yield world._replace(damaged=world.damaged - x), "read", memory
        else:
            yield world, "end", memory
    elif at == "write blindly":
        yield world._replace(containers=world.containers | x, damaged=world.damaged - x), "read", memory
    elif at == "read":
        yield world, "companion" if x <= world.containers else "end", memory
    elif at == "companion":
        yield world._replace(companions=world.companions | x), "end", memory
    elif at == "end":
        yield world.drop_intent(me), "done", memory


MEMORY = {backup: (NONE, 0), prune: (NONE, NONE), finisher: (NONE, NONE), heal: (NONE, NONE)}


def explore(actors, containers, is_needed, rules):
    """All orders of the actors. The number of states, and the steps to one that fails."""
    names = frozenset(containers)
    snapshots = frozenset(["old"]) if is_needed else NONE
    world = World(names, names, names, frozenset("x"), snapshots, snapshots, NONE, NONE, NONE)
    start = (world, tuple(("start", MEMORY[actor]) for actor in actors))
    before, work = {start: None}, [start]
    while work:
        state = work.pop()
        world, places = state
        for number, (at, memory) in enumerate(places):
            if at == "done":
                continue
            for after, next_at, kept in actors[number](str(number), world, at, memory, rules):
                moved = places[:number] + ((next_at, kept),) + places[number + 1 :]
                found = (after, moved)
                if found in before:
                    continue
                before[found] = state
                if fault(after):
                    return len(before), steps_to(found, before)
                work.append(found)
    return len(before), None


def steps_to(state, before):
    steps = []
    while state:
        steps.append(state)
        state = before[state]
    return steps[::-1]


# Actors, containers at the start, and whether a snapshot needs the chunk.
CASES = {
    "backup, prune": ([backup, prune], "x", False),
    "backup, prune, two containers": ([backup, prune], "xy", False),
    "backup, prune, needed": ([backup, prune], "xy", True),
    "two prunes, needed": ([prune, prune], "xy", True),
    "two backups, prune": ([backup, backup, prune], "x", False),
    "prune, finisher, needed": ([prune, finisher], "xy", True),
    "backup, prune, finisher": ([backup, prune, finisher], "x", False),
    "heal, prune": ([heal, prune], "x", False),
    "heal, prune, needed": ([heal, prune], "xy", True),
    "heal, backup, prune": ([heal, backup, prune], "x", False),
    "heal, prune, finisher, needed": ([heal, prune, finisher], "xy", True),
    "two heals, prune": ([heal, heal, prune], "xy", False),
}

# A store without conditions: safe as long as no prune takes the heal for dead.
SAFE = [
    ("heal, prune", ["blind write", "patient"]),
    ("heal, backup, prune", ["blind write", "patient"]),
]

# Rules that are left out, and where that must fail.
NEEDED = [
    ("backup, prune", ["no recheck"]),
    ("backup, prune", ["no second list"]),
    ("backup, prune", ["no entry", "no recheck"]),
    ("backup, prune", ["no intents read", "no recheck"]),
    ("backup, prune", ["snapshots first"]),
    ("two prunes, needed", ["no withdrawal"]),
    ("backup, prune, finisher", ["no own entry"]),
    ("backup, prune", ["companion after segment"]),
    ("backup, prune", ["sweep lists containers first"]),
    ("heal, prune", ["blind write"]),
    ("heal, prune", ["blind write", "patient", "no intent of a heal"]),
]


def main():
    is_verbose, is_right = "-v" in sys.argv[1:], True
    cases = [(name, []) for name in CASES] + SAFE
    for wants_fault, runs in ((False, cases), (True, NEEDED)):
        for name, rules in runs:
            actors, containers, is_needed = CASES[name]
            states, steps = explore(actors, containers, is_needed, frozenset(rules))
            said = fault(steps[-1][0]) if steps else "safe"
            without = f", with {' and '.join(rules)}" if rules else ""
            is_expected = bool(steps) == wants_fault
            is_right &= is_expected
            print(f"{name}{without}: {states} states, {said}{'' if is_expected else ' (NOT EXPECTED)'}", flush=True)
            if steps and (is_verbose or not is_expected):
                for world, places in steps:
                    print("   ", [at for at, _ in places], *(f"{key}={sorted(map(str, value))}" for key, value in world._asdict().items()))
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())

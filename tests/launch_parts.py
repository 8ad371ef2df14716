"""What the decision whether launches become one kernel is made from."""

from weft.frontend.kernel import fusion
from weft.schedule import launches


def parts_of(noted):
    prepared = [fusion._prepare(n) for n in noted]
    return [launches.Part(n.launch.kernel.__name__, p.kernel, n.launch.grid, n.launch.block,
                          n.host.variables, tuple(fusion._arrays(n, p)))
            for n, p in zip(noted, prepared, strict=True)]

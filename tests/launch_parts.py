"""What the decision whether launches become one kernel is made from."""

from weft.lang.launch_fusion import fuse_launches
from weft.schedule.launch_fusion import launches


def parts_of(noted):
    prepared = [fuse_launches._prepare(n) for n in noted]
    return [launches.Part(n.launch.kernel.__name__, p.kernel, n.launch.grid, n.launch.block,
                          n.host.variables, tuple(fuse_launches._arrays(n, p)))
            for n, p in zip(noted, prepared, strict=True)]

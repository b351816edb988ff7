"""The process of test_sub_groups in which oclgrind is the only OpenCL platform."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

from test_sub_groups import source

from tilegen.errors import VerifyError
from tilegen.kernel import Kernel
from tilegen.testing import Problem, View, check_problem
from tilegen_opencl.oclgrind_child import device as simulator
from tilegen_opencl.stand_ins import with_stand_ins


def main(name: str, old: str = "", new: str = "") -> None:
    emitted = source(name)
    assert old in emitted.text
    text = with_stand_ins(
        replace(emitted, text=emitted.text.replace(old, new) if old else emitted.text)
    )
    device = simulator(emitted.plan.arch)
    binary = device.compile(replace(emitted, text=text))
    kernel = Kernel(binary, device, device.load(binary))
    bm, bn, bk = emitted.plan.block
    ran, wrong = [], ""
    views = [
        {},
        {"a": View(broadcast="cols"), "b": View(broadcast="rows"), "c": View(offset=1, pad=3)},
    ]
    for m, n, k in ((bm, bn, bk + 1), (bm + 1, bn - 1, bk + 1), (1, bn + 3, 1), (2, 3, 0)):
        for view in views:
            try:
                ran.append(check_problem(kernel, Problem(m, n, k, beta=2.0, views=view)).entry)
            except VerifyError as error:
                wrong = str(error)
    print(json.dumps({"ran": sorted(set(ran)), "wrong": wrong}))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The TileSpec at the door: round trips, the digest, the schema, and a sentence for every fault."""

from __future__ import annotations

import copy
import json
import math
import pickle
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tilegen.errors import SpecError
from tilegen.spec import EpilogueOp, Majorness, TileSpec, TypeName, json_schema
from tilegen.spec_faults import KEYWORDS

SMALL: dict[str, Any] = {"block": [128, 128, 16], "warp": [64, 32]}

extents = st.integers(1, 65536)
names = st.from_regex(r"[a-z][a-z0-9_]{0,39}", fullmatch=True)
bounds = st.floats(allow_nan=False, allow_infinity=False)
pin_integers = st.integers(-(2**31), 2**31 - 1)
pin_values = st.one_of(
    st.from_regex(r"[A-Za-z0-9_.]{1,64}", fullmatch=True),
    st.booleans(),
    pin_integers,
    st.lists(pin_integers, max_size=3).map(tuple),
)


@st.composite
def steps(draw: st.DrawFn) -> list[dict[str, Any]]:
    out = []
    for op in draw(st.lists(st.sampled_from(get_args(EpilogueOp)), max_size=4, unique=True)):
        step: dict[str, Any] = {"op": op}
        if op in ("bias", "scale") and draw(st.booleans()):
            step["along"] = draw(st.sampled_from("mn"))
        if op == "clamp":
            step["low"], step["high"] = sorted((draw(bounds), draw(bounds)))
        out.append(step)
    return out


def per_operand(choices: tuple[str, ...], operands: tuple[str, ...]) -> st.SearchStrategy[Any]:
    value = st.sampled_from(choices)
    return st.fixed_dictionaries({}, optional=dict.fromkeys(operands, value))


specs = st.fixed_dictionaries(
    {"block": st.tuples(extents, extents, extents), "warp": st.tuples(extents, extents)},
    optional={
        "name": names.filter(lambda name: name not in KEYWORDS),
        "thread": st.tuples(extents, extents),
        "stages": st.integers(1, 16),
        "split_k": st.integers(1, 1024),
        "types": per_operand(get_args(TypeName), ("a", "b", "acc", "c", "d")),
        "layout": per_operand(get_args(Majorness), ("a", "b", "c", "d")),
        "batch": st.sampled_from(["none", "strided"]),
        "epilogue": steps(),
        "pins": st.dictionaries(names, st.dictionaries(names, pin_values, max_size=3), max_size=2),
    },
)


@given(specs)
def test_every_way_out_and_back_keeps_the_spec_and_its_digest(data: dict[str, Any]) -> None:
    spec = TileSpec.from_dict(data)
    ways = {
        "toml": TileSpec.from_toml(spec.to_toml()),
        "json, in full": TileSpec.from_json(spec.model_dump_json()),
        "json, without defaults": TileSpec.from_json(spec.canonical),
        "a dump without defaults": TileSpec.from_dict(spec.model_dump(exclude_defaults=True)),
        "replace nothing": spec.replace(),
        "pickle": pickle.loads(pickle.dumps(spec)),
        "deep copy": copy.deepcopy(spec),
    }
    for way, back in ways.items():
        assert back == spec, way
        assert (back.canonical, back.digest) == (spec.canonical, spec.digest), way
        assert hash(back) == hash(spec), way


@given(specs)
def test_the_schema_accepts_what_the_spec_accepts(data: dict[str, Any]) -> None:
    spec = TileSpec.from_dict(data)
    validator = Draft202012Validator(json_schema())
    validator.validate(json.loads(json.dumps(data)))
    validator.validate(json.loads(spec.model_dump_json()))


@given(specs, specs)
def test_specs_that_differ_have_digests_that_differ(
    one: dict[str, Any], two: dict[str, Any]
) -> None:
    a, b = TileSpec.from_dict(one), TileSpec.from_dict(two)
    assert (a == b) == (a.digest == b.digest)


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (SMALL, "4eceafa2c27f07d75bffff5adfe43ed1ff5f1ca3eda338dcab63acb2ed2194e1"),
        (
            {
                "name": "gemm_bf16",
                "block": [128, 128, 32],
                "warp": [64, 32],
                "stages": 3,
                "types": {"a": "bf16", "b": "bf16", "c": "bf16"},
                "epilogue": [{"op": "bias"}, {"op": "clamp", "low": 0, "high": 6}],
                "pins": {"cuda": {"instruction": "m16n8k16"}},
            },
            "d7453d3cc9a1c36e900c5f7c4ae6d3b82af719f246901367eff7c8cf887de6b1",
        ),
    ],
)
def test_digests_stay_what_they_were(data: dict[str, Any], digest: str) -> None:
    assert TileSpec.from_dict(data).digest == digest


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ({}, {"name": "gemm", "stages": 2, "split_k": 1, "batch": "none", "epilogue": []}),
        ({}, {"types": {"a": "f32", "d": "f32"}, "layout": {"b": "row"}, "pins": {}}),
        ({}, {"thread": None}),
        ({"types": {"c": "f16"}}, {"types": {"acc": "f32", "d": "f16", "c": "f16"}}),
        ({"layout": {"c": "col"}}, {"layout": {"d": "col", "c": "col"}}),
        ({"epilogue": [{"op": "bias"}]}, {"epilogue": [{"along": "n", "op": "bias"}]}),
        (
            {"epilogue": [{"op": "clamp", "low": 0, "high": 6}]},
            {"epilogue": [{"op": "clamp", "low": -0.0, "high": 6.0, "along": None}]},
        ),
    ],
)
def test_a_digest_does_not_depend_on_the_way_of_writing(
    short: dict[str, Any], long: dict[str, Any]
) -> None:
    one, other = TileSpec.from_dict(SMALL | short), TileSpec.from_dict(long | SMALL)
    assert one == other
    assert (one.digest, hash(one)) == (other.digest, hash(other))
    assert one.digest == TileSpec(**SMALL, **short).digest


@pytest.mark.parametrize("table", ["types", "layout"])
def test_an_output_unlike_c_survives_though_it_is_the_default(table: str) -> None:
    value = {"types": {"c": "f16", "d": "f32"}, "layout": {"c": "col", "d": "row"}}[table]
    spec = TileSpec(**SMALL, **{table: value})
    follows = TileSpec(**SMALL, **{table: {"c": value["c"]}})
    assert getattr(TileSpec.from_toml(spec.to_toml()), table).d == value["d"]
    assert spec.digest != follows.digest


def test_a_spec_cannot_be_changed_and_replace_checks() -> None:
    spec = TileSpec(**SMALL)
    with pytest.raises(ValueError, match="frozen"):
        spec.stages = 3  # type: ignore[misc]
    assert spec.replace(stages=3).stages == 3
    assert spec.replace(warp=(32, 64)).warps == (4, 2)
    with pytest.raises(SpecError, match="'stage' is not a known key; did you mean 'stages'"):
        spec.replace(stage=3)


def test_the_schema_is_one_and_refuses_what_the_spec_refuses() -> None:
    schema = json_schema()
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    for change in (
        {"blok": 1},
        {"block": [128, 128]},
        {"block": [0, 128, 16]},
        {"block": [128, 128, 65537]},
        {"stages": "3"},
        {"types": {"a": "fp16"}},
        {"types": {"e": "f16"}},
        {"layout": {"a": "rowmajor"}},
        {"epilogue": [{"op": "tanh"}]},
        {"epilogue": [{"op": "relu", "amount": 1}]},
        {"name": "Gemm"},
        {"name": "float"},
        {"pins": {"opencl": {"form": 1.5}}},
    ):
        data = SMALL | change
        assert not validator.is_valid(data), change
        with pytest.raises(SpecError):
            TileSpec.from_dict(data)


NAME = "is not a name: lower-case letters, digits and '_', a letter first, 40 at most"
PIN = "must be text, true or false, a whole number under 2^31 or a list of such numbers, 16 at most"
KNOWN = "known: name, block, warp, thread, stages, split_k, types, layout, batch, epilogue, pins"
FAULTS: list[tuple[dict[str, Any], str]] = [
    (
        {"name": "float"},
        "name = 'float' is a keyword of C or C++; nearest legal value: 'gemm_float'",
    ),
    # unknown keys, at each level
    ({"blok": 1}, "'blok' is not a known key; did you mean 'block'?"),
    ({"zzz": 1}, f"'zzz' is not a known key; {KNOWN}"),
    ({"self": 1}, f"'self' is not a known key; {KNOWN}"),
    ({"x\ny": 1}, f"'x\\ny' is not a known key; {KNOWN}"),
    ({"types": {"ac": "f32"}}, "'types.ac' is not a known key; did you mean 'acc'?"),
    ({"layout": {"aa": "row"}}, "'layout.aa' is not a known key; did you mean 'a'?"),
    (
        {"epilogue": [{"op": "relu"}, {"op": "bias", "alog": "n"}]},
        "'epilogue[1].alog' is not a known key; did you mean 'along'?",
    ),
    # extents and counts
    ({"block": [True, 128, 16]}, "block[0] = True: must be a whole number"),
    ({"block": [128.0, 128, 16]}, "block[0] = 128.0: must be a whole number"),
    ({"block": [128, 128, 16.5]}, "block[2] = 16.5: must be a whole number"),
    ({"block": [math.nan, 128, 16]}, "block[0] = nan: must be a whole number"),
    ({"block": ["128", 128, 16]}, "block[0] = '128': must be a whole number"),
    ({"block": [-1, 128, 16]}, "block[0] = -1: must be at least 1"),
    ({"block": [128, 0, 16]}, "block[1] = 0: must be at least 1"),
    ({"block": [10**30, 1, 1]}, f"block[0] = {10**30}: must be at most 65536"),
    ({"block": [128, 128]}, "block[2] is missing"),
    ({"block": [1, 2, 3, 4]}, "block has 4 values; 3 is all"),
    ({"block": [1] * 9999}, "block has 9999 values; 3 is all"),
    ({"block": 128}, "block = 128: must be a list"),
    ({"block": "128"}, "block = '128': must be a list"),
    ({"block": {"m": 128}}, "block = {'m': 128}: must be a list"),
    ({"block": None}, "block = None: must be a list"),
    ({"thread": [8, 0]}, "thread[1] = 0: must be at least 1"),
    ({"stages": True}, "stages = True: must be a whole number"),
    ({"stages": 2.0}, "stages = 2.0: must be a whole number"),
    ({"stages": 17}, "stages = 17: must be at most 16"),
    ({"split_k": 0}, "split_k = 0: must be at least 1"),
    # names reach file names and kernel text
    *(
        ({"name": name}, f"name = {name!r} {NAME}")
        for name in (
            'gemm"; evil',
            "../x",
            "a/b",
            "gemm\n",
            "gémm",
            "",
            "Gemm",
            "1x",
            "a b",
            "%s",
            "{{x}}",
            "x" * 41,
        )
    ),
    ({"name": "y" * 5000}, f"name = 'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy...' {NAME}"),
    ({"name": 5}, "name = 5: must be text"),
    ({"name": b"gemm"}, "name = b'gemm': must be text"),
    ({"name": "\ud800"}, "name = '\\ud800': must be text in valid Unicode"),
    # choices
    (
        {"types": {"a": "fp16"}},
        "types.a = 'fp16' is not one of 'f64', 'f32', 'tf32', 'f16', 'bf16', 'e4m3', 'e5m2', "
        "'e4m3fnuz', 'e5m2fnuz', 's8', 'u8' or 's32'; did you mean 'f16'?",
    ),
    ({"layout": {"c": 3}}, "layout.c = 3 is not one of 'row' or 'col'"),
    ({"batch": True}, "batch = True is not one of 'none' or 'strided'"),
    ({"types": "f32"}, "types = 'f32': must be a table of keys and values"),
    ({"types": [1]}, "types = [1]: must be a table of keys and values"),
    # epilogue
    ({"epilogue": {"op": "relu"}}, "epilogue = {'op': 'relu'}: must be a list"),
    ({"epilogue": ["relu"]}, "epilogue[0] = 'relu': must be a table of keys and values"),
    ({"epilogue": [{}]}, "epilogue[0].op is missing"),
    ({"epilogue": [{"op": "relu", "along": "n"}]}, "epilogue[0]: relu takes no 'along'"),
    ({"epilogue": [{"op": "silu", "low": 1}]}, "epilogue[0]: silu takes neither 'low' nor 'high'"),
    (
        {"epilogue": [{"op": "bias", "along": "k"}]},
        "epilogue[0].along = 'k' is not one of 'm' or 'n'",
    ),
    ({"epilogue": [{"op": "clamp"}]}, "epilogue[0]: clamp needs 'low' and 'high'"),
    (
        {"epilogue": [{"op": "clamp", "low": math.nan, "high": 1}]},
        "epilogue[0].low = nan: must be a finite number",
    ),
    (
        {"epilogue": [{"op": "clamp", "low": 0, "high": math.inf}]},
        "epilogue[0].high = inf: must be a finite number",
    ),
    (
        {"epilogue": [{"op": "clamp", "low": 2, "high": 1}]},
        "epilogue[0]: clamp has low = 2.0 above high = 1.0",
    ),
    (
        {"epilogue": [{"op": "clamp", "low": False, "high": 1}]},
        "epilogue[0].low = False: must be a number",
    ),
    *(
        (
            {"epilogue": [{"op": op}, {"op": "relu"}, {"op": op}]},
            f"epilogue: {op} stands more than once; a launch takes one of each",
        )
        for op in ("bias", "scale", "residual")
    ),
    # pins
    ({"pins": 1}, "pins = 1: must be a table of keys and values"),
    ({"pins": {"cuda": "wgmma"}}, "pins.cuda = 'wgmma': must be a table of keys and values"),
    *(
        (
            {"pins": {"cuda": {"form": text}}},
            f"pins.cuda.form = {text!r} may hold letters, digits, '_' and '.'",
        )
        for text in ("", "a b", 'x"; y', "x\n", "ünï", "*/", "\ud800")
    ),
    *(
        ({"pins": {"cuda": {"form": value}}}, f"pins.cuda.form: {PIN}")
        for value in (1.5, 1.0, None, {"x": 1}, [1, "2"], [True], [1.0], 10**30)
    ),
    ({"pins": {"a b": {}}}, f"pins: the key 'a b' {NAME}"),
    ({"pins": {"a\nb": {}}}, f"pins: the key 'a\\nb' {NAME}"),
    ({"pins": {"cuda": {'"x': 1}}}, f"pins.cuda: the key '\"x' {NAME}"),
    ({"pins": {3: {}}}, "pins: the key 3 is not a text"),
]


@pytest.mark.parametrize(("change", "sentence"), FAULTS, ids=lambda part: ascii(part)[:60])
def test_a_fault_gives_one_sentence(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SpecError) as caught:
        TileSpec.from_dict(SMALL | change)
    assert str(caught.value) == sentence
    assert sentence.isprintable()


def test_several_faults_are_clauses_of_one_sentence() -> None:
    with pytest.raises(SpecError) as caught:
        TileSpec.from_dict({"warp": [0, 32], "stages": 99})
    assert str(caught.value) == (
        "block is missing; warp[0] = 0: must be at least 1; stages = 99: must be at most 16"
    )


@pytest.mark.parametrize("key", ["\ud800", "q" * 5000, 3])
def test_an_odd_key_is_named_in_a_short_line(key: Any) -> None:
    with pytest.raises(SpecError) as caught:
        TileSpec.from_dict({**SMALL, key: 1})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("data", [[], None, "block", 3])
def test_what_is_no_table_is_no_spec(data: Any) -> None:
    with pytest.raises(SpecError, match=f"a table of keys and values, not {type(data).__name__}"):
        TileSpec.from_dict(data)
    with pytest.raises(SpecError, match=f"a table of keys and values, not {type(data).__name__}"):
        TileSpec.from_json(json.dumps(data))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("block = [1, 2", "not valid TOML: "),
        ("block = [1, 2, 3]\nblock = [1, 2, 3]", "not valid TOML: Cannot overwrite a value"),
        ("\x00", "not valid TOML: "),
        ("a = " + "[" * 20000, "not valid TOML: it is nested too deeply"),
        ("a = " + "1" * 20000, "not valid TOML: Exceeds the limit"),
    ],
)
def test_bad_toml(text: str, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        TileSpec.from_toml(text)
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not valid JSON: Expecting value"),
        ('{"block": ', "not valid JSON: Expecting value"),
        ("[" * 100000, "not valid JSON: it is nested too deeply"),
        ("1" * 20000, "not valid JSON: Exceeds the limit"),
    ],
)
def test_bad_json(text: str, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        TileSpec.from_json(text)
    assert str(caught.value).startswith(says)


def test_files_are_read_by_their_suffix(tmp_path: Path) -> None:
    spec = TileSpec(**SMALL, types={"c": "f16"})
    for name, text in (
        ("spec.toml", spec.to_toml()),
        ("spec.json", spec.canonical),
        ("SPEC.JSON", spec.canonical),
    ):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        assert TileSpec.from_file(path) == spec
        assert TileSpec.from_file(str(path)) == spec
    marked = tmp_path / "marked.toml"
    marked.write_text(spec.to_toml(), encoding="utf-8-sig")
    assert TileSpec.from_file(marked) == spec


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b'name = "g\xe9mm"')
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("block = [1, 2, 3]")
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    for path, says in (
        (tmp_path / "none.toml", "there is no such file; 'tilegen init' writes one"),
        (tmp_path, "cannot be read: Is a directory"),
        (latin, "cannot be read: it is not UTF-8 text"),
        (wrong, "warp is missing"),
        (broken, "not valid JSON: "),
    ):
        with pytest.raises(SpecError) as caught:
            TileSpec.from_file(path)
        assert str(caught.value).startswith(f"{path}: {says}")


def test_a_path_with_a_zero_byte_is_refused_like_any_other() -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        TileSpec.from_file("a\0b.toml")


def fault(call: Any) -> str:
    with pytest.raises(SpecError) as caught:
        call()
    return str(caught.value)


def test_pydantics_other_ways_in_give_the_same_sentence() -> None:
    wrong = {"block": [64, 64], "warp": [32, "x"]}
    told = fault(lambda: TileSpec(**wrong))
    assert fault(lambda: TileSpec.model_validate(wrong)) == told
    assert fault(lambda: TileSpec.model_validate_json(json.dumps(wrong))) == told
    strings = fault(lambda: TileSpec.model_validate_strings({"block": "x", "warp": ["32", "32"]}))
    assert strings.startswith("block = ")
    assert fault(lambda: TileSpec.model_validate_json("{")).startswith("not valid JSON: ")
    assert fault(lambda: TileSpec.model_validate(5)) == (
        "a spec is a table of keys and values, not int"
    )
    spec = TileSpec(**SMALL)
    assert TileSpec.model_validate(SMALL) == spec
    assert TileSpec.model_validate(spec) is spec
    assert TileSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    "text",
    [
        '{"block": [64, 64, 16], "warp": [32, 32], "block": [32, 32, 16]}',
        '{"block": [64, 64, 16], "warp": [32, 32], "types": {"a": "f32", "b": "f32", "a": "f16"}}',
        '{"block": [64, 64, 16], "warp": [32, 32], "epilogue": [{"op": "relu", "op": "bias"}]}',
        '{"block": [64, 64, 16], "warp": [32, 32], "bl\\u006fck": [64, 64, 16]}',
    ],
)
def test_a_json_key_that_stands_twice_is_refused(text: str) -> None:
    assert "stands twice in one table" in fault(lambda: TileSpec.from_json(text))


def test_a_toml_key_that_stands_twice_is_refused() -> None:
    for text in (
        "stages = 2\nstages = 3",
        "[types]\na = 'f32'\na = 'f16'",
        "types = {a='f32', a='f16'}",
    ):
        assert "not valid TOML" in fault(lambda text=text: TileSpec.from_toml(text))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"epilogue": [{"op": "relu"}] * 33}, "epilogue has 33 values; 32 is all"),
        ({"epilogue": [{"op": "relu"}] * 100_000}, "32 is all"),
        ({"pins": {f"b{i}": {} for i in range(17)}}, "pins has over 16 values; 16 is all"),
        ({"pins": {"cuda": {f"p{i}": 1 for i in range(65)}}}, "pins.cuda has over 64 values"),
        ({"pins": {"cuda": {"p": [1] * 17}}}, "a list of such numbers, 16 at most"),
    ],
)
def test_lists_have_an_end(change: dict[str, Any], says: str) -> None:
    assert says in fault(lambda: TileSpec(**SMALL, **change))


def test_the_longest_epilogue_is_taken() -> None:
    spec = TileSpec(**SMALL, epilogue=[{"op": "relu"}] * 32)
    assert TileSpec.from_toml(spec.to_toml()) == spec
    schema = json_schema()["properties"]["epilogue"]
    assert schema["maxItems"] == 32

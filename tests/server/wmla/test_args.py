"""The command line of a submission: what is the platform's, what is the script's, and what is said of the rest."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edt_sdk.schemas.errors import EdtError, InvalidRequest, Unprocessable
from edt_server.wmla.args import parse
from edt_server.wmla.platform_options import FLAGS, HONOURED, WITHOUT_MEANING

WORDS = st.text(alphabet="abcdefgXYZ0123456789._/=:,", min_size=1, max_size=12)
# What belongs to a script: options that are not the platform's, each with or without a value.
SCRIPT = st.lists(
    st.one_of(
        st.tuples(WORDS.map(lambda word: f"--my-{word}")),
        st.tuples(WORDS.map(lambda word: f"--my-{word}"), WORDS.map(lambda word: f"v{word}")),
        st.just(("-x",)),
    ),
    max_size=5,
)
PLATFORM = {
    "--exec-start": "PyTorch", "--model-main": "train.py", "--model-dir": "d", "--numWorker": "3",
    "--gpuPerWorker": "2",
    "--msd-priority": "9", "--msd-env": "A=b", "--msd-image-name": "x:1", "--debug-level": "debug", "--appName": "n",
    "--cs-datastore-meta": "type=fs,data_path=mnist", "--edt-options": "maxWorkers=4", "--msd-pending-timeout": "60",
    "--python-version": "3.6", "--workerMemory": "4G", "--consumer": "/a/b", "--ig": "dli",
}  # fmt: skip


def test_a_notebook_s_line() -> None:
    told = parse(
        "--exec-start edtPyTorch   --cs-datastore-meta type=fs,data_path=pytorch-mnist  --model-dir model --model-main "
        "/home/me/main.py --edt-options maxWorkers=2  --epochs 15 --debug-level debug "
    )
    assert (told.framework, told.main, told.model_dir) == ("edtPyTorch", "main.py", "model")
    assert (told.max_workers, told.data_path, told.debug_level) == (2, "pytorch-mnist", "debug")
    assert told.datastore == "type=fs,data_path=pytorch-mnist"
    assert told.script == ("--epochs", "15")
    assert told.remarks == ()


def test_everything_behind_two_dashes_is_the_script_s() -> None:
    told = parse("--exec-start PyTorch --lr 0.1 -- --numWorker 2 --debug-level x -- json")
    assert told.script == ("--lr", "0.1", "--numWorker", "2", "--debug-level", "x", "--", "json")
    assert told.workers is None


@given(st.permutations(sorted(PLATFORM)), st.data(), SCRIPT)
def test_order_and_form_of_options_do_not_matter(
    order: list[str], data: st.DataObject, script: list[tuple[str, ...]]
) -> None:
    pieces: list[tuple[str, ...]] = [
        (f"{option}={PLATFORM[option]}",) if data.draw(st.booleans()) else (option, PLATFORM[option])
        for option in order
    ]
    for piece in script:
        pieces.insert(data.draw(st.integers(0, len(pieces))), piece)
    told = parse("  ".join(word for piece in pieces for word in piece))
    assert (told.framework, told.main, told.model_dir, told.app_name) == ("PyTorch", "train.py", "d", "n")
    assert (told.workers, told.devices, told.max_workers, told.priority) == (3, 2, 4, 9)
    assert (told.env, told.pending_timeout, told.data_path) == ({"A": "b"}, 60.0, "mnist")
    assert (told.consumer, told.instance_group, told.debug_level) == ("/a/b", "dli", "debug")
    assert sorted(told.script) == sorted(word for piece in script for word in piece)
    assert len(told.remarks) == 3


@given(st.lists(st.text(alphabet="ab '\"\\$;#+&-=", max_size=6), max_size=6))
def test_what_was_quoted_arrives_as_it_was(words: list[str]) -> None:
    told = parse(f"--exec-start PyTorch -- {shlex.join(words)}")
    assert told.script == tuple(words)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    refused: EdtError | None = None
    try:
        parse(text)
    except EdtError as error:
        refused = error
    assert refused is None or (refused.message.endswith(".") and refused.ids["field"].startswith("--"))


@pytest.mark.parametrize("option", sorted(HONOURED | set(WITHOUT_MEANING)))
def test_no_platform_option_reaches_the_script(option: str) -> None:
    value = PLATFORM.get(option, '{"type":"fs"}' if option == "--data-source" else "1")
    if option == "--user-cmd":
        return
    told = parse(f"--first {option} {'' if option in FLAGS else value} --last")
    assert told.script == ("--first", "--last")
    assert bool(told.remarks) == (option in WITHOUT_MEANING and (option, value) not in {("--numDriver", "1")})


def test_repeated_options() -> None:
    told = parse(
        "--numWorker 2 --numWorker=3 --msd-env A=1 --msd-env B=x=y --msd-env A= --msd-label a=b --msd-label a=b"
    )
    assert told.workers == 3
    assert told.env == {"A": "", "B": "x=y"}
    assert told.remarks == ("--msd-label a=b has no meaning here: there are no pods here.",)


def test_a_user_s_command_stands_as_it_was_sent() -> None:
    told = parse("--exec-start distPyTorch --numWorker 2 --user-cmd -- torchrun --nnodes=$WMLA_NWORKER  'a  b' > out")
    assert told.command == "torchrun --nnodes=$WMLA_NWORKER  'a  b' > out"
    assert told.script == ()


def test_quotes_that_the_client_s_shell_has_taken() -> None:
    assert parse("--title don't --ddl_opts=_QUOTE_-mode x_QUOTE_ -- all").script == ("--title", "don't", "all")
    assert parse("--title 5\" it's").script == ("--title", '5"', "it's")


def test_a_data_source_with_its_quotes_or_without() -> None:
    bare = parse('--data-source [{"type": "fs", "location": {"paths": "a b"}}] --x 1')
    quoted = parse("""--data-source='[{"type": "fs", "location": {"paths": "a b"}}]' --x 1""")
    assert bare.data_source == quoted.data_source == [{"type": "fs", "location": {"paths": "a b"}}]
    assert bare.script == quoted.script == ("--x", "1")
    assert parse("-- --data-source [1]").data_source is None


def test_what_a_client_leaves_of_its_own_options_is_not_the_script_s() -> None:
    assert parse("json --exec-start PyTorch custom-columns=a,b --model-main a.py --format json").script == (
        "--format",
        "json",
    )
    assert parse("--exec-start PyTorch json").script == ("json",)
    assert parse("--exec-start PyTorch --model-main a.py json -- --epochs 1").script == ("--epochs", "1")
    assert parse("--exec-start PyTorch --format json -- --epochs 1").script == ("--format", "json", "--epochs", "1")


def test_secrets_are_not_repeated() -> None:
    told = parse("--cs-url-bearer abc123 --msd-image-pull-secret hidden")
    assert "abc123" not in str(told.remarks)
    assert "hidden" not in str(told.remarks)


@pytest.mark.parametrize(
    ("line", "option", "cls"),
    [
        ("--numWorker two", "--numWorker", InvalidRequest),
        ("--numWorker", "--numWorker", InvalidRequest),
        ("--numWorker --epochs 1", "--numWorker", InvalidRequest),
        ("--numWorker 0", "--numWorker", Unprocessable),
        ("--numWorker=", "--numWorker", InvalidRequest),
        ("--edt-options maxWorkers=x", "--edt-options maxWorkers", InvalidRequest),
        ("--edt-options maxWorkers=-2", "--edt-options maxWorkers", Unprocessable),
        ("--msd-priority -1", "--msd-priority", Unprocessable),
        ("--msd-priority high", "--msd-priority", InvalidRequest),
        ("--msd-env A", "--msd-env", InvalidRequest),
        ("--msd-env 1A=b", "--msd-env", InvalidRequest),
        ("--msd-pending-timeout soon", "--msd-pending-timeout", InvalidRequest),
        ("--msd-pending-timeout 0", "--msd-pending-timeout", Unprocessable),
        ("--msd-pending-timeout nan", "--msd-pending-timeout", Unprocessable),
        ("--debug-level loud", "--debug-level", InvalidRequest),
        ("--data-source [1,", "--data-source", InvalidRequest),
        ("--data-source x", "--data-source", InvalidRequest),
        ("--model-main ..", "--model-main", InvalidRequest),
        ("--user-cmd", "--user-cmd", InvalidRequest),
        ("--user-cmd --", "--user-cmd", InvalidRequest),
        ("--user-cmd bash x.sh", "--user-cmd", InvalidRequest),
        ("--user-cmd --epochs 1 -- bash x.sh", "--user-cmd", InvalidRequest),
    ],
)
def test_bad_values_name_their_option(line: str, option: str, cls: type[EdtError]) -> None:
    with pytest.raises(cls) as refused:
        parse(line)
    assert refused.value.ids["field"] == option
    assert option in refused.value.message

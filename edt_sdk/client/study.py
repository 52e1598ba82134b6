"""A search as a study of Optuna, for its plots, importances and dashboard. Optuna is loaded at the first use."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from edt_sdk.schemas.errors import Conflict
from edt_sdk.schemas.search.space import Choice, Integer, Parameter
from edt_sdk.schemas.search.spec import SearchSpec
from edt_sdk.schemas.search.views import TrialReport, TrialState, TrialView

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

# A trial that is held or was stopped has ended early to Optuna.
_STATES = {
    TrialState.WAITING: "WAITING",
    TrialState.RUNNING: "RUNNING",
    TrialState.FINISHED: "COMPLETE",
    TrialState.FAILED: "FAIL",
}


def study_of(
    spec: SearchSpec, trials: Iterable[TrialView], reports: Iterable[TrialReport], epochs: int | None = None
) -> optuna.Study:
    """Return a study in memory with these trials.

    Args:
        spec: of the search.
        trials: all, by number.
        reports: theirs, which become the intermediate values.
        epochs: take the values after so many epochs. Trials with such a value are complete, all others have failed.
    """
    import optuna

    rows, reported = list(trials), _values(spec, reports)
    space = {name: _distribution(each) for name, each in spec.space.items()}
    # A list of points has no space. Its values are those that it has.
    points = {name for row in rows for name in row.params} - set(space)
    space |= {name: _chosen([row.params[name] for row in rows if name in row.params]) for name in points}
    with _quiet():
        study = optuna.create_study(
            study_name=spec.job.name, direction=optuna.study.StudyDirection[spec.direction.upper()]
        )
    for row in rows:
        values = reported.get(row.number, {})
        value = row.value if epochs is None else values.get(epochs)
        state = _STATES.get(row.state, "PRUNED") if epochs is None else "COMPLETE"
        if state == "COMPLETE" and value is None:
            state = "FAIL"  # Optuna knows no result that is not finite
        study.add_trial(
            optuna.trial.FrozenTrial(
                number=row.number, trial_id=row.number, state=optuna.trial.TrialState[state],
                value=value if state == "COMPLETE" else None,
                datetime_start=None if state == "WAITING" else datetime.fromtimestamp(row.created),
                datetime_complete=None if row.ended is None else datetime.fromtimestamp(row.ended),
                params={name: _within(space[name], each) for name, each in row.params.items()},
                distributions={name: space[name] for name in row.params}, system_attrs={}, intermediate_values=values,
                user_attrs={"job": row.job, "epochs": row.epochs, "parent": row.parent, "message": row.message},
            )
        )  # fmt: skip
    return study


def importances(spec: SearchSpec, trials: Iterable[TrialView], reports: Sequence[TrialReport]) -> dict[str, float]:
    """Return how much of the metric each hyper-parameter decides, by PED-ANOVA (Watanabe et al., IJCAI 2023).

    Where trials are compared before their end, their values after those epochs count that the most of them reached.
    Conflict where the values are too few, or too much alike, to tell.
    """
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    reached = Counter(epochs for values in _values(spec, reports).values() for epochs in values)
    most = max(reached, key=lambda epochs: (reached[epochs], epochs), default=None) if spec.kind.rungs else None
    study, evaluator = study_of(spec, trials, reports, most), PedAnovaImportanceEvaluator()
    known = sum(each.value is not None for each in study.trials if each.state.name == "COMPLETE")
    try:
        with warnings.catch_warnings():
            # It warns where it finds nothing, and gives each parameter the same part.
            warnings.simplefilter("error", UserWarning)
            found = get_param_importances(study, evaluator=evaluator) if known else {}
    except UserWarning:
        found = {}
    if not found:
        text = f"The values of {known} trial{'s' * (known != 1)} do not tell how much each hyper-parameter decides."
        raise Conflict(text, hint="More trials may, and values that differ more.")
    return found


def write_journal(study: optuna.Study, path: str | os.PathLike[str]) -> None:
    """Add a study to a journal file of Optuna. Conflict where the file has one with its name."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend(os.fspath(path)))
    with _quiet():
        try:
            optuna.copy_study(from_study_name=study.study_name, from_storage=study._storage, to_storage=storage)
        except optuna.exceptions.DuplicatedStudyError:
            text = f"{os.fspath(path)} has a study {study.study_name!r} already."
            raise Conflict(text, hint="Write to another file.") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Let Optuna print no line for a study that is made."""
    import optuna

    logged = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(logged)


def _values(spec: SearchSpec, reports: Iterable[TrialReport]) -> Mapping[int, dict[int, float]]:
    found: dict[int, dict[int, float]] = {}
    for each in reports:
        if (value := each.metrics.get(spec.metric)) is not None:
            found.setdefault(each.trial, {})[each.budget] = value
    return found


def _distribution(parameter: Parameter) -> BaseDistribution:
    from optuna.distributions import FloatDistribution, IntDistribution

    if isinstance(parameter, Choice):
        return _chosen(parameter.values)
    if isinstance(parameter, Integer):
        return IntDistribution(parameter.low, parameter.high, log=parameter.log, step=parameter.step)
    low, high = parameter.real(parameter.low), parameter.real(parameter.high)
    if parameter.base is not None:
        return FloatDistribution(low, high, log=True)
    return FloatDistribution(low, high, log=parameter.log, step=parameter.step)


def _chosen(values: Iterable[Any]) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution

    return CategoricalDistribution(list(dict.fromkeys(values)))


def _within(distribution: BaseDistribution, value: Any) -> Any:
    """Return the value, which is rounded to 12 digits, within the ends of its range."""
    low, high = getattr(distribution, "low", None), getattr(distribution, "high", None)
    return value if low is None or high is None else min(max(value, low), high)

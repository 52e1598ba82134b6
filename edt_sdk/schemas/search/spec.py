"""What a search is: the settings a client submits (`SearchSpec`) or changes (`SearchPatch`).

The template of every trial is a `JobSpec`. Its name, priority, queue, maximum, tags and notes are those of the search.
`SearchSpec.check` runs at the two trust edges, as that of a job does, and `SearchSpec.resolved` is the one place that
fills in what was left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from edt_sdk.schemas.errors import InvalidRequest, Unprocessable
from edt_sdk.schemas.fields import did_you_mean, near
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import (
    SUBMITTABLE,
    JobPatch,
    JobSpec,
    Seconds,
    check_spelling,
    convert_change,
    parse_submission,
)
from edt_sdk.schemas.search.cost import check_cost
from edt_sdk.schemas.search.space import Choice, Integer, Parameter, Value, check_space, parse_space

MOST_TRIALS = 10_000
MOST_GP_TRIALS = 2_000
MOST_EPOCHS = 10**6
MOST_LANES = 1024
MOST_SPACE_BYTES = 1_000_000
MOST_ETA = 1000
MOST_COMPARISONS = 1000
LONGEST_METRIC = 200
_COUNTLESS = 10**9
SAMPLERS = ("random", "qmc", "tpe", "gp", "cmaes", "nsga2")
# Their suggestions follow from seed and number, and no history is needed.
BLIND = ("random", "qmc")
_SEARCH_NAME = re.compile(r"[\w.-]{1,120}\Z")
# The first alternative is {{name}}, which stands for the braces themselves and has no group.
_PLACE = re.compile(r"\{\{[A-Za-z_][\w.-]*\}\}|\{([A-Za-z_][\w.-]*)\}")
_MORE_IS_BETTER = re.compile(r"acc|auc|f1|r2|score|precision|recall|reward|iou|bleu", re.IGNORECASE)
_LESS_IS_BETTER = re.compile(r"loss|err|mse|mae|perplexity", re.IGNORECASE)


class Algorithm(NamedTuple):
    """What a search by an algorithm needs and may have.

    Attributes:
        orders: the orders in which it may decide, its own first.
        rungs: it compares trials before they have all their epochs.
        options: the names of its own options.
    """

    orders: tuple[str, ...]
    rungs: bool = False
    options: tuple[str, ...] = ()


_AT_THE_END = Algorithm(("rungs", "free"))
_ONE_BY_ONE = Algorithm(("clock", "free"))
ALGORITHMS: Mapping[str, Algorithm] = {
    "random": _AT_THE_END,
    "qmc": _AT_THE_END,
    "grid": _AT_THE_END,
    "list": _AT_THE_END,
    "tpe": _ONE_BY_ONE,
    "gp": _ONE_BY_ONE,
    "cmaes": _ONE_BY_ONE,
    "nsga2": _ONE_BY_ONE,
    "halving": Algorithm(("rungs", "free"), rungs=True),
    "hyperband": Algorithm(("rungs",), rungs=True),
    "asha": Algorithm(("clock", "free"), rungs=True),
    "median": Algorithm(("clock", "free"), rungs=True, options=("least_finished", "least_epochs")),
    "pbt": Algorithm(("rungs",), rungs=True, options=("quantile", "resample")),
    "manual": Algorithm(("free",)),
}
# An algorithm of a user gets its reports in batches.
PLUG_IN = Algorithm(("rungs",))

_WORDS: Mapping[str, tuple[str, ...]] = {
    "direction": ("", "minimize", "maximize"),
    "sampler": ("", *SAMPLERS),
    "order": ("", "rungs", "clock", "free"),
    "job_seed": ("same", "per-trial"),
    "value": ("last", "best"),
}


def _one_of(field: str) -> Meta:
    return Meta(extra_json_schema={"enum": list(_WORDS[field])})


Trials = Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": MOST_TRIALS}, extra={"metavar": "N"})]
Epochs = Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": MOST_EPOCHS}, extra={"metavar": "N"})]
Parallel = Annotated[int, Meta(extra_json_schema={"minimum": 0}, extra={"metavar": "N"})]
Name = Annotated[str, Meta(extra={"metavar": "NAME"})]


class SearchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One search.

    Attributes:
        job: the template of every trial. Its name, priority, queue, maximum, tags and notes are those of the search,
            its seed that of every trial, and `{lr}` in its arguments is the trial's value of lr.
        space: the hyper-parameters: name → range or choices.
        metric: the metric that is compared, such as test_accuracy.
        direction: minimize or maximize (default: by the metric's name, where that has a word such as loss or accuracy).
        trials: how many trials (default: all of a grid or a list).
        epochs: epochs of a whole trial, 0 for as many as the script trains.
        min_epochs: epochs after which trials are compared for the first time; with pbt and median also the epochs
            between two comparisons.
        eta: one trial of so many goes on to the next comparison, with so many times the epochs.
        algorithm: what decides (default: halving with `min_epochs`, else tpe).
        options: settings of the algorithm and of its sampler, by name.
        sampler: what suggests values for an algorithm that is none itself (default random).
        order: rungs decides when all reports of a comparison are there, clock by a virtual clock, free by arrival
            (default: that of the algorithm).
        deterministic: equal searches decide equally; off for the order free.
        lanes: how many trials at once the virtual clock counts with; with `resource` and plug-ins the size of a batch.
        cost: what an epoch costs under the virtual clock, over the values, such as depth*width/64 (default: 1).
        parallel: most trials that run at once, 0 for as many as get slots.
        seed: seed of the suggested values.
        job_seed: same gives every trial the template's seed, per-trial gives each another one.
        value: last or best: which of its reports is a trial's value.
        max_time: seconds after which the search ends with what it has.
        points: values to try first; with the algorithm list all of them.
        resource: name of the hyper-parameter that holds the epochs, for frameworks whose jobs cannot be held. Each
            comparison is then followed by new runs.
        fail_fast: pause the search when its first three trials fail with the same error.
    """

    job: JobSpec
    space: dict[str, Parameter] = {}
    metric: Name
    direction: Annotated[str, _one_of("direction")] = ""
    trials: Trials = 0
    epochs: Epochs = 0
    min_epochs: Epochs = 0
    eta: Annotated[float, Meta(extra_json_schema={"minimum": 2, "maximum": MOST_ETA})] = 3
    algorithm: Name = ""
    options: dict[str, Value] = {}
    sampler: Annotated[str, _one_of("sampler")] = ""
    order: Annotated[str, _one_of("order")] = ""
    deterministic: bool = True
    lanes: Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": MOST_LANES}, extra={"metavar": "N"})] = 16
    cost: Annotated[str, Meta(extra={"metavar": "EXPR"})] = ""
    parallel: Parallel = 0
    seed: Annotated[int, Meta(extra_json_schema={"minimum": 0})] = 0
    job_seed: Annotated[str, _one_of("job_seed")] = "same"
    value: Annotated[str, _one_of("value")] = "last"
    max_time: Seconds | None = None
    points: tuple[dict[str, Value], ...] = ()
    resource: Name = ""
    fail_fast: bool = True

    @property
    def kind(self) -> Algorithm:
        """What its algorithm needs and may have. An unknown name is that of a plug-in."""
        return ALGORITHMS.get(self.algorithm, PLUG_IN)

    def resolved(self) -> SearchSpec:
        """Return the same search with every default filled in. Only a checked search has a sensible answer."""
        algorithm = self.algorithm or ("halving" if self.min_epochs else "tpe")
        kind = ALGORITHMS.get(algorithm, PLUG_IN)
        own = algorithm if algorithm in SAMPLERS else "random" if kind.rungs else ""
        free = not self.deterministic and "free" in kind.orders
        order = self.order or ("free" if free else kind.orders[0])
        return msgspec.structs.replace(
            self,
            algorithm=algorithm,
            sampler=self.sampler or own,
            order=order,
            deterministic=order != "free",
            direction=self.direction or direction_of(self.metric) or "minimize",
            trials=min(filter(None, (self.trials, self._every_trial(algorithm))), default=0),
            min_epochs=max(self.min_epochs, 1) if kind.rungs else 0,
        )

    @property
    def names(self) -> set[str]:
        """Return the names of the values that a trial gets."""
        given = {name for point in self.points if not self.space for name in point}
        return {*self.space, *given, self.resource} - {""}

    def notes(self) -> tuple[str, ...]:
        """Return what is no error but may not be meant, in sentences."""
        used = set(self._places())
        found = [
            f"{name} stands in no argument: the script has to read it from config.json or edt_sdk.params()."
            for name in self.space
            if used and name not in used
        ]
        if self.job.mode == "fast" and self.deterministic:
            found.append("With mode='fast' trials are not equal bit by bit, so a repetition may decide differently.")
        return tuple(found)

    def check(self) -> SearchSpec:
        """Return self, or raise InvalidRequest or Unprocessable naming the field."""
        self.job.check()
        if not _SEARCH_NAME.match(self.job.name):
            hint = "Its name has 1 to 120 letters, digits, dots, dashes and underscores."
            raise Unprocessable(f"A search cannot be called {self.job.name!r:.130}.", hint=hint, field="name")
        check_space(self.space)
        self._check_words()
        self._check_space()
        whole = self.resolved()
        self._check_numbers(whole)
        if whole.kind.rungs:
            self._check_comparisons(whole)
        elif self.min_epochs:
            hint = "Leave min_epochs out, or use algorithm='asha' with sampler='tpe'."
            raise _refusal("min_epochs", f"{whole.algorithm} compares whole trials only.", hint)
        return self

    def _check_words(self) -> None:
        if self.algorithm and self.algorithm not in ALGORITHMS and misspells(self.algorithm):
            _check_word("algorithm", self.algorithm, ALGORITHMS)  # another name may be that of a plug-in
        for field, known in _WORDS.items():
            _check_word(field, getattr(self, field), known)
        if not self.metric.strip() or len(self.metric) > LONGEST_METRIC:
            raise _refusal("metric", f"metric has 1 to {LONGEST_METRIC} characters.", "Such as test_loss.")
        if not self.direction and not direction_of(self.metric):
            hint = "Give direction='maximize' or direction='minimize'."
            raise _refusal("direction", f"Is more or less of {self.metric!r} better?", hint)
        whole = self.resolved()
        if whole.order not in whole.kind.orders:
            hint = "Use algorithm='asha' to compare trials as they arrive." if whole.kind.rungs else ""
            text = f"{whole.algorithm} decides in the order {' or '.join(whole.kind.orders)}, not {whole.order!r}."
            raise _refusal("order", text, hint)
        if self.order not in ("", "free") and not self.deterministic:
            raise _refusal("order", "deterministic=False is the order 'free'.", "Leave one out.")
        if whole.algorithm in SAMPLERS and whole.sampler != whole.algorithm:
            raise _refusal("sampler", f"{whole.algorithm} suggests the values itself.", "Leave sampler out.")
        for name, value in self.options.items():
            if name in whole.kind.options and not (isinstance(value, int | float) and 0 <= value < math.inf):
                raise _refusal("options", f"{name} is a number, at least 0, not {value!r:.60}.")
            if name not in whole.kind.options and near(name, whole.kind.options) is not None:
                _check_word("options", name, whole.kind.options)  # another name may be that of the sampler

    def _check_space(self) -> None:
        whole = self.resolved()
        if len(msgspec.json.encode((self.space, self.points))) > MOST_SPACE_BYTES:
            raise _refusal("space", f"Space and points have at most {MOST_SPACE_BYTES:,} bytes.")
        if not self.space and whole.algorithm not in ("list", "manual"):
            hint = "Such as space={'lr': log(1e-4, 1e-1)}."
            raise _refusal("space", "The space is empty: there is nothing to search.", hint)
        if self.resource:
            check_space({self.resource: Integer(low=1, high=2)})
        if self.resource in self.space:
            raise _refusal("resource", f"The search itself sets {self.resource!r}.", "Leave it out of the space.")
        names = self.names
        for place in self._places():
            if place not in names:
                hint = did_you_mean(place, names) or f"Write {{{{{place}}}}} for the braces themselves."
                text = f"{{{place}}} stands in the arguments, and the space has no {place!r}."
                raise InvalidRequest(text, hint=hint, field="args")
        for name, parameter in self.space.items():
            if whole.algorithm == "grid" and parameter.count is None:
                raise _refusal(f"space.{name}", f"A grid needs the values of {name!r}.", "Give a step, or choices.")
        if whole.algorithm == "grid" and self.points:
            raise _refusal("points", "A grid has its values by itself.", "Leave points out, or use algorithm='list'.")
        for point in self.points:
            self.point(point)
        check_cost(self.cost, self.space)

    def point(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Return the values of a trial as the space can have them, or raise Unprocessable naming the parameter."""
        if not self.space:  # a list may name other parameters in each trial
            if not values:
                raise _refusal("points", "A point has no values.")
            check_space({name: Choice(values=(value,)) for name, value in values.items()})
            return dict(values)
        for name in (*values, *self.space):
            if name not in self.space:
                text = f"A point has a value for {name!r}, which is not in the space."
                raise _refusal("points", text, did_you_mean(name, self.space))
            if name not in values:
                raise _refusal("points", f"A point has no value for {name!r}.", "Give all of them.")
        return {name: parameter.fitted(values[name]) for name, parameter in self.space.items()}

    def _check_numbers(self, whole: SearchSpec) -> None:
        if not 1 <= whole.trials <= MOST_TRIALS:
            text = f"A search has 1 to {MOST_TRIALS:,} trials, not {whole.trials:,}."
            raise _refusal("trials", text, "Such as trials=81.")
        if whole.sampler == "gp" and whole.trials > MOST_GP_TRIALS:
            text = f"gp has at most {MOST_GP_TRIALS:,} trials, not {whole.trials:,}: its time grows with their cube."
            raise _refusal("trials", text, "Use tpe.")
        if len(self.points) > whole.trials:
            raise _refusal("points", f"These are {len(self.points)} points for {whole.trials} trials.")
        for field, least, most in (
            ("lanes", 1, MOST_LANES),
            ("epochs", 0, MOST_EPOCHS),
            ("min_epochs", 0, MOST_EPOCHS),
            ("seed", 0, 2**63 - 1),
        ):
            if not least <= (value := getattr(self, field)) <= most:
                raise _refusal(field, f"{field} must lie in {least} … {most:,}, not {value:,}.")
        if not 2 <= self.eta <= MOST_ETA:  # refuses NaN too
            raise _refusal("eta", f"eta must lie in 2 … {MOST_ETA:,}, not {self.eta:g}.")
        _check_changeable(self.parallel, self.max_time)

    def _check_comparisons(self, whole: SearchSpec) -> None:
        name = whole.algorithm
        if not self.epochs:
            raise _refusal("epochs", f"{name} needs the epochs of a whole trial.", "Such as epochs=27.")
        if whole.min_epochs > self.epochs:
            raise _refusal("min_epochs", f"min_epochs is {whole.min_epochs} and epochs only {self.epochs}.")
        if name in ("pbt", "median") and self.epochs > MOST_COMPARISONS * whole.min_epochs:
            text = f"{self.epochs:,} epochs have at most {MOST_COMPARISONS:,} comparisons."
            raise _refusal("min_epochs", text, f"Say min_epochs={-(-self.epochs // MOST_COMPARISONS)} or more.")
        if self.resource and name not in ("halving", "hyperband"):
            text = f"{name} holds its trials and starts no new runs."
            raise _refusal("resource", text, "With resource use halving or hyperband.")
        if not self.resource and self.job.framework != Framework.EDT:
            text = f"Jobs of the framework {self.job.framework} cannot be held after {whole.min_epochs} epochs."
            hint = "Name the hyper-parameter with the epochs by resource=, or use framework='edtPyTorch'."
            raise _refusal("min_epochs", text, hint)
        if name == "pbt":
            self._check_population(whole)
        least = 2 if name == "pbt" else 1 if self.resource or name == "median" else self.eta
        if whole.trials < least:
            raise _refusal("trials", f"{name} needs at least {least:g} trials, not {whole.trials}.")

    def _check_population(self, whole: SearchSpec) -> None:
        for option, most in (("quantile", 0.5), ("resample", 1)):
            if (value := self.options.get(option, 0)) > most:  # type: ignore[operator]  # checked to be a number
                raise _refusal("options", f"{option} must lie in 0 … {most}, not {value}.")
        if whole.min_epochs >= self.epochs:
            text = f"pbt compares its members before they have all {self.epochs} epochs."
            raise _refusal("min_epochs", text, "Say min_epochs=1, the epochs between two comparisons.")

    def _places(self) -> list[str]:
        """Return the names in braces in the arguments. Doubled braces are no place."""
        words = " ".join((*self.job.args, *self.job.command))
        return [found[1] for found in _PLACE.finditer(words) if found[1]]

    def _every_trial(self, algorithm: str) -> int:
        """Return how many trials there can be. 0 where an algorithm goes on as long as it is asked."""
        if algorithm == "grid":
            return min(math.prod(parameter.count or 1 for parameter in self.space.values()), _COUNTLESS)
        return len(self.points) if algorithm == "list" else 0


# The fields of a search, and of the template of its jobs, that become options of a command line.
ASKED_OF_SEARCH = tuple(
    name for name in SearchSpec.__struct_fields__ if name not in ("job", "space", "metric", "points", "options")
)
ASKED_OF_TRIALS = (*(name for name in SUBMITTABLE if name != "seed"), "python")


class SearchPatch(JobPatch, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of a search. None leaves a field as it is.

    Attributes:
        trials: how many trials, more than now. Where rungs decide, only before the first decision.
        parallel: most trials that run at once, 0 for as many as get slots.
        max_time: seconds after which the search ends with what it has.
    """

    trials: Trials | None = None
    parallel: Parallel | None = None
    max_time: Seconds | None = None

    def check(self) -> SearchPatch:
        """Return self, or raise Unprocessable or InvalidRequest."""
        super().check()
        if self.trials is not None and not 1 <= self.trials <= MOST_TRIALS:
            raise _refusal("trials", f"A search has 1 to {MOST_TRIALS:,} trials, not {self.trials:,}.")
        _check_changeable(self.parallel, self.max_time)
        return self


class OnceMore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A search to start once more.

    Attributes:
        name: of the new one, "" for the old name with the next number.
        seed: of the new one, None for the same.
    """

    name: str = ""
    seed: int | None = None


class NewPoints(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Values for a search to try next.

    Attributes:
        points: the values of each new trial, by name.
    """

    points: tuple[dict[str, Value], ...]


def direction_of(metric: str) -> str:
    """Return "maximize" or "minimize" by the words in a metric's name, "" where these do not tell."""
    more, less = bool(_MORE_IS_BETTER.search(metric)), bool(_LESS_IS_BETTER.search(metric))
    return "" if more == less else "maximize" if more else "minimize"


def brackets(epochs: int, min_epochs: int, eta: float) -> list[tuple[int, list[int]]]:
    """Return Hyperband's brackets, widest first: how many trials begin, and the epochs at which they are compared.

    Algorithm 1 of Li et al., "Hyperband", JMLR 18 (2018), with R = epochs ÷ min_epochs and budgets rounded down.
    """
    widest = 0
    while min_epochs * eta ** (widest + 1) <= epochs * (1 + 1e-12):
        widest += 1
    found = []
    for s in range(widest, -1, -1):
        begin = -int(-(widest + 1) * eta**s // (s + 1))
        found.append((begin, [max(1, int(epochs / eta**left + 1e-9)) for left in range(s, -1, -1)]))
    return found


def filled(words: Iterable[str], values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return arguments with a trial's values in place of `{name}`, and `{{name}}` as `{name}`."""

    def value(found: re.Match[str]) -> str:
        return str(values.get(found[1], found[0])) if found[1] else found[0][1:-1]

    return tuple(_PLACE.sub(value, word) for word in words)


def search_of(job: JobSpec, settings: Mapping[str, Any]) -> SearchSpec:
    """Return the checked search with these settings whose trials are such jobs. Its `space` may be a text.

    Raises:
        InvalidRequest, Unprocessable: a setting cannot be used. The error names it.
    """
    if "job" in settings:
        raise InvalidRequest("job is not among these settings.", hint="Its own fields say what it is.", field="job")
    check_spelling(settings, SearchSpec)
    space = settings.get("space", {})
    fields = {**settings, "job": job, "space": parse_space(space) if isinstance(space, str) else space}
    return convert_change(fields, SearchSpec, InvalidRequest).check()


def parse_search(data: bytes | str) -> SearchSpec:
    """Return a checked SearchSpec from JSON, or raise InvalidRequest with the name of the wrong field."""
    return parse_submission(data, SearchSpec).check()


def misspells(name: str) -> bool:
    """Return whether a name is that of an algorithm, or near to one. Another name may be that of a plug-in."""
    found = near(name, ALGORITHMS)
    if found is None:
        return False
    plain = name.lower()
    # A whole name and more is no misspelling: people call their plug-ins my-random.
    return found not in plain or plain.strip("-_") == found


def _refusal(field: str, text: str, hint: str = "") -> Unprocessable:
    return Unprocessable(text, hint=hint, field=field)


def _check_word(field: str, word: str, known: Iterable[str]) -> None:
    if word not in known:
        names = [each for each in known if each]
        raise _refusal(field, f"{field} is {' or '.join(names)}, not {word!r:.60}.", did_you_mean(word, names))


def _check_changeable(parallel: int | None, max_time: float | None) -> None:
    if parallel is not None and parallel < 0:
        raise _refusal("parallel", f"parallel is a number of trials and cannot be {parallel}.")
    if max_time is not None and not 0 < max_time < float("inf"):
        raise _refusal("max_time", f"max_time is a number of seconds above 0, not {max_time:g}.")

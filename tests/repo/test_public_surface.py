"""The names people may rely on. A change here is a change for them: it belongs into the changelog."""

import importlib

import pytest

SDK = [
    "Callback",
    "ChangedMeanwhile",
    "Client",
    "Conflict",
    "Deployment",
    "EdtError",
    "Experiment",
    "FabricModel",
    "InvalidRequest",
    "Job",
    "JobFailed",
    "JobState",
    "JobView",
    "LoggerCallback",
    "NotAllowed",
    "NotBuiltYet",
    "NotFound",
    "PackageError",
    "Project",
    "Search",
    "SearchTrial",
    "ServerUnreachable",
    "TooLarge",
    "Unprocessable",
    "Version",
    "WaitTimeout",
    "__version__",
    "choice",
    "integer",
    "load_ipython_extension",
    "log",
    "params",
    "uniform",
    "unload_ipython_extension",
]


def test_the_sdk_offers_exactly_these_names():
    import edt_sdk

    assert sorted(edt_sdk.__all__) == sorted(SDK)
    assert [name for name in SDK if getattr(edt_sdk, name) is None] == []
    assert set(SDK) <= set(dir(edt_sdk))


def test_unknown_names_are_attribute_errors():
    import edt_sdk

    with pytest.raises(AttributeError, match="Clinet"):
        edt_sdk.Clinet  # noqa: B018


@pytest.mark.parametrize("module", ["fabric_model", "pyedt.fabric_model"])
def test_wmlas_module_names_lead_to_the_same_class(module):
    import edt_sdk

    assert importlib.import_module(module).FabricModel is edt_sdk.FabricModel

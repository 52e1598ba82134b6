"""Settings that follow from others."""

from pathlib import Path

from edt_server.settings import Settings
from edt_server.store import Store


def test_the_store_lies_in_the_data_folder_whatever_its_name_is(tmp_path: Path) -> None:
    folder = tmp_path / "100% of ana's #1 folder? yes"
    settings = Settings(data_dir=folder, runtime_dir=tmp_path / "run")
    Store.open(settings.store_url).close()
    assert (folder / "edt.sqlite").exists()

"""The compiled kernels on disk: what another version has left there is compiled anew."""

import importlib.util
import pickle

SOURCE = """
from glasshead.engines.streaming.kernels.arguments import entry


@entry
def doubled(number):
    return number * 2
"""


def loaded(path):
    spec = importlib.util.spec_from_file_location("kernels_of_the_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_index_that_names_types_that_are_no_more_is_forgotten(tmp_path):
    path = tmp_path / "kernels_of_the_test.py"
    path.write_text(SOURCE)
    assert loaded(path).doubled(13) == 26
    index = next(path.parent.rglob("*.nbi"))
    with index.open("rb") as file:
        version = pickle.load(file)
    gone = b"cglasshead.engines.streaming.kernels.arguments\nTypeThatIsNoMore\n."
    index.write_bytes(pickle.dumps(version) + gone)
    assert loaded(path).doubled(13) == 26
    assert list(loaded(path).doubled._cache._cache_file._load_index())

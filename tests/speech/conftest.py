"""Random Whispers in folders, written once for all tests of speech."""

import pytest

from tests.support import speech_folders


@pytest.fixture(scope="session")
def names(tmp_path_factory) -> dict[str, str]:
    """Folders, as `speech_folders.folders` names them; nothing writes into them."""
    pytest.importorskip("tokenizers")
    return speech_folders.folders(tmp_path_factory.mktemp("whispers"))

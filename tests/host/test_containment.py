"""Folders from others: what leads out of them, or nowhere, is one line."""

import os
import resource
from pathlib import Path

import pytest

from fastweights.host import UserError
from fastweights.host.containment import check_all_contained


@pytest.mark.parametrize(
    ("link", "target"), [("loop", "loop"), ("out", ".."), ("far", "/"), ("a", "b")]
)
def test_a_link_out_of_the_folder_or_to_itself_is_refused(link, target, tmp_path):
    (tmp_path / "b").symlink_to("a")
    (tmp_path / link).symlink_to(target)
    with pytest.raises(UserError, match="is a link out of the run folder, or to itself: replace"):
        check_all_contained(tmp_path)


def test_a_pipe_deep_below_is_refused_with_few_files_open(tmp_path):
    deep = tmp_path / "/".join(["folder"] * 60)
    deep.mkdir(parents=True)
    os.mkfifo(deep / "pipe")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 20, hard))
    try:
        with pytest.raises(UserError, match="is neither a file nor a folder"):
            check_all_contained(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_links_within_the_folder_are_allowed(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "up").symlink_to(Path("..") / "file")
    check_all_contained(tmp_path)

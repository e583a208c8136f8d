"""Snapshots in a store: whole or not at all, listed in order, kept as long as they should be."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

import pytest
from moto.server import ThreadedMotoServer

from model_core.errors import InvalidInput
from service.errors import (
    DamagedSnapshot,
    SnapshotLeaving,
    StoreUnavailable,
    UnknownSnapshot,
)
from service.snapshots.store.catalogue import LEAVING, Catalogue, Entry, list_readable
from service.snapshots.store.objects import (
    ABANDONED_SECONDS,
    PARTIAL,
    DirectoryStore,
    ObjectStore,
    UnusableStore,
    Write,
    open_store,
)
from tests.support.commands import environment
from tests.support.snapshot_samples import sample


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch, s3_endpoint: str) -> ObjectStore:
    for name, value in (("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test"), ("REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    bucket = f"bucket{time.monotonic_ns()}"
    store = open_store(f"s3://{bucket}/models")
    store._files.mkdir(bucket)  # type: ignore[attr-defined]
    return store


@pytest.fixture(params=["directory", "s3", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "directory":
        return open_store(str(tmp_path / "snapshots"))
    if request.param == "memory":
        return open_store(f"memory://{tmp_path.name}")
    found: ObjectStore = request.getfixturevalue("s3")
    return found


UPLOADER = """
import os, resource, sys
from service.snapshots.store.objects import open_store
store = open_store(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
print(store.put("large", lambda file: file.writelines(os.urandom(1_000_000) for _ in range(20))))
"""


@pytest.mark.slow
def test_an_upload_streams_in_parts_and_needs_no_room_on_a_disk(s3: ObjectStore) -> None:
    aws = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    done = subprocess.run(
        [sys.executable, "-c", UPLOADER, f"s3://{s3._root}"],  # type: ignore[attr-defined]
        env=environment(**aws),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "20000000\n", done.stderr
    assert s3.names("") == {"large": 20_000_000}


@pytest.mark.parametrize("pieces", [1, 20])
def test_an_aborted_upload_changes_nothing_and_leaves_no_parts(s3: ObjectStore, pieces: int) -> None:
    def break_off(file: BinaryIO) -> None:
        file.writelines(os.urandom(1_000_000) for _ in range(pieces))
        raise OSError("broken off")

    s3.put("one", lambda file: file.write(b"before"))
    for name in ("one", "two"):
        with pytest.raises(OSError, match="broken off"):
            s3.put(name, break_off)
    gc.collect()  # closes files that were left open
    assert s3.names("") == {"one": 6}
    bucket = s3._root.partition("/")[0]  # type: ignore[attr-defined]
    left = s3._files.call_s3("list_multipart_uploads", Bucket=bucket)  # type: ignore[attr-defined]
    assert "Uploads" not in left


def test_a_snapshot_is_written_listed_tagged_read_and_deleted(store: ObjectStore) -> None:
    catalogue = Catalogue(store, "clicks")
    assert catalogue.entries() == []
    first, second = catalogue.write(sample(commit=1)), catalogue.write(sample(commit=2))
    Catalogue(store, "other").write(sample())
    catalogue.tag(first, "good")
    listed = catalogue.entries()
    assert [(entry.id, entry.tags) for entry in listed] == [(first.id, ("good",)), (second.id, ())]
    assert listed[1].bytes == second.bytes > 0
    assert catalogue.find("good").id == first.id
    assert catalogue.find("newest").id == catalogue.find(second.id).id == second.id
    assert catalogue.header(second).commit == 2
    assert catalogue.load(first).state().digest() == sample().state().digest()
    catalogue.untag(first, "good")
    catalogue.delete(second)
    assert [(entry.id, entry.tags) for entry in catalogue.entries()] == [(first.id, ())]
    with pytest.raises(UnknownSnapshot, match="'clicks' has no snapshot with the id or tag 'good'"):
        catalogue.find("good")


def test_a_snapshot_with_a_revision_without_mark_is_read(
    store: ObjectStore,
) -> None:
    snapshot = sample()
    old = replace(snapshot, header=replace(snapshot.header, mark=""))
    assert "mark" not in old.header.text()
    catalogue = Catalogue(store, "clicks")
    entry = catalogue.write(old)
    assert entry.id.endswith("Z-01234567-0-3")
    assert [found.id for found in catalogue.entries()] == [entry.id]
    assert catalogue.load(entry).header == old.header


def test_folders_are_distinguished_from_objects(store: ObjectStore) -> None:
    for name in ("clicks/one", "clicks/log-a/1", "clicks/log-a/2", "clicks/log-b/deep/1", "other/log-c/1"):
        store.put(name, lambda file: file.write(b"content"))
    assert sorted(store.folders("clicks/")) == ["log-a", "log-b"]
    assert list(store.names("clicks/")) == ["one"]
    assert store.folders("absent/") == []


def test_the_newest_and_the_tagged_are_kept(store: ObjectStore) -> None:
    catalogue = Catalogue(store, "clicks")
    written = [catalogue.write(sample(10, commit=i), ["good"] if i == 1 else []) for i in range(5)]
    deleted = catalogue.retain(2)
    assert [entry.id for entry in deleted] == [written[0].id, written[2].id]
    assert [entry.id for entry in catalogue.entries()] == [written[i].id for i in (1, 3, 4)]


class Interrupted(DirectoryStore):
    """Another process does something just before the operation of that number."""

    def __init__(self, root: Path, at: int, do: Callable[[], object]) -> None:
        super().__init__(root)
        self._until, self._do = at, do

    def _count(self) -> None:
        if self._until == 0:
            self._do()
        self._until -= 1

    def names(self, prefix: str) -> dict[str, int]:
        self._count()
        return super().names(prefix)

    def put(self, name: str, write: Write) -> int:
        self._count()
        return super().put(name, write)

    def remove(self, name: str) -> None:
        self._count()
        super().remove(name)


@pytest.mark.parametrize("at", range(7))
@pytest.mark.parametrize("first", ["tag", "retain"])
def test_a_tag_set_during_retention_is_effective_or_refused(directory: Path, first: str, at: int) -> None:
    plain = Catalogue(DirectoryStore(directory), "clicks")
    old, _ = (plain.write(sample(10, commit=i)) for i in range(2))
    tagged: list[bool] = []

    def tag(catalogue: Catalogue = plain) -> None:
        try:
            catalogue.tag(old, "good")
            tagged.append(True)
        except SnapshotLeaving:
            tagged.append(False)

    def retain(catalogue: Catalogue = plain) -> None:
        catalogue.retain(1)

    do, meanwhile = (tag, retain) if first == "tag" else (retain, tag)
    do(Catalogue(Interrupted(directory, at, meanwhile), "clicks"))
    if not tagged:
        tag()  # it came to its end before
    assert [entry.tags for entry in plain.entries() if entry.id == old.id] in ([("good",)], [()], [])
    kept = [entry.id for entry in plain.entries() if entry.tags == ("good",)]
    assert kept == ([old.id] if tagged == [True] else [])
    plain.retain(1)
    assert sorted(path.suffix for path in (directory / "clicks").iterdir()) == (
        [".good", ".zst", ".zst"] if tagged == [True] else [".zst"]
    )


def test_retention_sweeps_what_a_killed_process_left(catalogue: Catalogue, directory: Path) -> None:
    kept = catalogue.write(sample(10, commit=1))
    past = (kept.written - timedelta(hours=2)).strftime("%Y%m%dT%H%M%S%fZ")
    future = (kept.written + timedelta(hours=2)).strftime("%Y%m%dT%H%M%S%fZ")
    for left in (f"{past}-ab-0-1.tag.good", f"{past}-ab-0-2.leaving", f"{kept.id}.leaving"):
        (directory / "clicks" / left).touch()
    being_written = directory / "clicks" / f"{future}-ab-0-3.tag.good"
    being_written.touch()
    catalogue.retain(1)
    assert {path.name for path in (directory / "clicks").iterdir()} == {
        f"{kept.id}.safetensors.zst",
        being_written.name,
    }
    catalogue.tag(kept, "good")


def test_a_snapshot_that_goes_or_is_gone_cannot_be_tagged(store: ObjectStore) -> None:
    catalogue = Catalogue(store, "clicks")
    entry = catalogue.write(sample(10))
    named, mark = f"{entry.id} of model 'clicks'", f"clicks/{entry.id}{LEAVING}"
    store.put(mark, lambda _: None)
    with pytest.raises(SnapshotLeaving, match=f"{named} is being deleted by retention and was not tagged"):
        catalogue.tag(entry, "good")
    store.remove(mark)
    catalogue.delete(entry)
    with pytest.raises(SnapshotLeaving, match=f"{named} was deleted just now and was not tagged"):
        catalogue.tag(entry, "good")
    assert store.names("clicks/") == {}


def test_a_snapshot_deleted_during_a_listing_is_left_out(store: ObjectStore) -> None:
    catalogue = Catalogue(store, "clicks")
    first, second = (catalogue.write(sample(10, commit=i)) for i in range(2))

    class Stale(Catalogue):
        """Its names were read before retention came."""

        def entries(self) -> list[Entry]:
            found = super().entries()
            super().delete(first)
            return found

    found, damaged = list_readable(Stale(store, "clicks"))
    assert ([one["id"] for one in found], damaged) == ([second.id], [])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


@pytest.fixture
def catalogue(directory: Path) -> Catalogue:
    return Catalogue(open_store(directory.as_uri()), "clicks")


def test_snapshots_stay_in_order_if_the_clock_is_set_back(catalogue: Catalogue, directory: Path) -> None:
    before = catalogue.write(sample(10, commit=1))
    future = datetime.now(UTC) + timedelta(days=400)
    moved = before.id.replace(before.id[:22], future.strftime("%Y%m%dT%H%M%S%fZ"))
    file = directory / "clicks" / f"{before.id}.safetensors.zst"
    file.rename(file.with_name(f"{moved}.safetensors.zst"))
    after = [catalogue.write(sample(10, commit=i)) for i in (2, 3)]
    assert [entry.id for entry in catalogue.entries()] == [moved, after[0].id, after[1].id]
    catalogue.retain(2)
    assert [entry.id for entry in catalogue.entries()] == [after[0].id, after[1].id]


@pytest.mark.parametrize("place", [0, 300, 2000, -100])
def test_an_altered_file_is_refused(catalogue: Catalogue, directory: Path, place: int) -> None:
    entry = catalogue.write(sample())
    (file,) = (directory / "clicks").iterdir()
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
    with pytest.raises(DamagedSnapshot, match=f"Snapshot {entry.id} of model 'clicks'"):
        catalogue.load(entry)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_torn_file_is_refused(catalogue: Catalogue, directory: Path, share: float) -> None:
    entry = catalogue.write(sample())
    (file,) = (directory / "clicks").iterdir()
    os.truncate(file, int(entry.bytes * share))
    with pytest.raises(DamagedSnapshot):
        catalogue.load(entry)


WRITER = """
import resource, signal, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
from service.snapshots.store.catalogue import Catalogue
from service.errors import StoreUnavailable
from service.snapshots.store.objects import open_store
from tests.support.snapshot_samples import sample
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    Catalogue(open_store(sys.argv[1]), "clicks").write(sample(2000, commit=9))
except StoreUnavailable as failure:
    print(failure.detail)
"""


def test_a_full_disk_leaves_only_the_existing_snapshots(catalogue: Catalogue, directory: Path) -> None:
    kept = catalogue.write(sample(10))
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(directory)],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Cannot write to the snapshot store: [Errno 27] File too large" in done.stdout
    assert [path.name for path in (directory / "clicks").iterdir()] == [f"{kept.id}.safetensors.zst"]


def test_partial_files_of_a_killed_writer_are_ignored_and_removed(
    catalogue: Catalogue, directory: Path
) -> None:
    (directory / "clicks").mkdir(parents=True)
    recent, old = (directory / "clicks" / f"{PARTIAL}{name}" for name in ("recent", "old"))
    for partial in (recent, old):
        partial.write_bytes(b"half of a snap")
    past = time.time() - ABANDONED_SECONDS - 1
    os.utime(old, (past, past))
    assert catalogue.entries() == []
    entry = catalogue.write(sample(10))
    assert [entry.id for entry in catalogue.entries()] == [entry.id]
    assert recent.exists()
    assert not old.exists()


def test_two_writers_at_once_write_two_snapshots(catalogue: Catalogue) -> None:
    samples = [sample(100, commit=i) for i in range(4)]
    threads = [threading.Thread(target=catalogue.write, args=(one,)) for one in samples]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {catalogue.header(entry).commit for entry in catalogue.entries()} == {0, 1, 2, 3}


def test_a_store_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StoreUnavailable, match="Cannot list the snapshot store"):
        Catalogue(open_store("s3://bucket/models"), "clicks").entries()


def test_a_directory_that_is_a_file_is_a_store_that_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable):
        Catalogue(open_store(str(tmp_path / "file")), "clicks").write(sample(10))


def test_a_store_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UnusableStore, match="FTRL_SNAPSHOTS cannot be used"):
        open_store("nowhere://bucket")


@pytest.mark.parametrize("tag", ["", "newest", "Good", "a b", "../x", "x" * 33])
def test_a_bad_tag_is_refused(catalogue: Catalogue, tag: str) -> None:
    with pytest.raises(InvalidInput, match="a tag is"):
        catalogue.tag(Entry("x", (), 0), tag)


def test_a_snapshot_deleted_before_it_is_read_is_unknown(catalogue: Catalogue) -> None:
    entry = catalogue.write(sample(10))
    catalogue.delete(entry)
    catalogue.delete(entry)
    for read in (catalogue.header, catalogue.load):
        with pytest.raises(UnknownSnapshot, match=entry.id):
            read(entry)

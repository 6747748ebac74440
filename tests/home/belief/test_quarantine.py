"""The waiting room: what is in it survives, and what was cut off is not in it."""

from pathlib import Path
from struct import Struct
from zlib import crc32

import pytest
from tests.home.away.lying import parcels

from sterna.errors import StorageError
from sterna.home.belief.quarantine import HeldVisit, Quarantine


async def filled(room: Quarantine, visit: str = "v1", count: int = 3) -> HeldVisit:
    stay = await room.open(visit)
    for each in parcels(count):
        await stay.add(each, 100 * each.number)
    return stay


async def test_parcels_come_out_as_they_went_in(tmp_path: Path) -> None:
    room = Quarantine(tmp_path / "waiting")
    assert not room.has("v1")
    stay = await filled(room)
    assert [each.parcel for each in stay.parcels()] == parcels(3)
    assert [each.size_bytes for each in stay.parcels()] == [100, 200, 300]
    assert (stay.last, stay.is_proven, room.has("v1")) == (3, False, True)
    stay.leave()
    assert not room.has("v1")
    assert list((tmp_path / "waiting").iterdir()) == []


async def test_what_waits_is_there_after_a_restart(tmp_path: Path) -> None:
    stay = await filled(Quarantine(tmp_path))
    stay.close()
    again = await Quarantine(tmp_path).open("v1")
    assert (again.last, again.is_proven) == (3, False)
    await again.add(parcels(4)[3], 7)
    await again.prove()
    await again.prove()
    again.close()
    third = await Quarantine(tmp_path).open("v1")
    assert (third.last, third.is_proven) == (4, True)
    assert [each.parcel.number for each in third.parcels()] == [1, 2, 3, 4]
    third.leave()


@pytest.mark.parametrize("cut", [1, 8, 30])
async def test_record_that_was_cut_off_is_forgotten_and_written_again(tmp_path: Path, cut: int) -> None:
    stay = await filled(Quarantine(tmp_path))
    stay.close()
    file = tmp_path / "v1"
    file.write_bytes(file.read_bytes()[:-cut])
    again = await Quarantine(tmp_path).open("v1")
    assert again.last == 2
    await again.add(parcels(3)[2], 300)
    assert [each.parcel for each in again.parcels()] == parcels(3)
    again.leave()


async def test_record_that_was_damaged_ends_what_counts(tmp_path: Path) -> None:
    room = Quarantine(tmp_path / "waiting")
    stay = await filled(room)
    stay.close()
    file = tmp_path / "waiting" / "v1"
    data = bytearray(file.read_bytes())
    data[20] ^= 1
    file.write_bytes(data)
    again = await room.open("v1")
    assert (again.last, list(again.parcels())) == (0, [])
    again.leave()
    # Its host has deleted what was whole behind it.
    assert (tmp_path / "aside" / "v1.from-0").read_bytes() == data


async def test_file_of_another_version_is_set_aside_since_its_host_has_deleted_the_parcels(
    tmp_path: Path,
) -> None:
    data = b"of another version"
    record = Struct(">II").pack(len(data), crc32(data)) + data
    file = tmp_path / "waiting" / "v1"
    file.parent.mkdir()
    file.write_bytes(record)
    again = await Quarantine(file.parent).open("v1")
    assert (again.last, again.size_bytes, list(again.parcels())) == (0, 0, [])
    await again.add(parcels(1)[0], 7)
    assert [each.parcel for each in again.parcels()] == parcels(1)
    again.leave()
    assert (tmp_path / "aside" / "v1").read_bytes() == record


async def test_room_is_full_when_all_visits_together_take_too_much(tmp_path: Path) -> None:
    room = Quarantine(tmp_path, most_bytes=1)
    assert not room.full.is_set()
    stay = await filled(room)
    other = await room.open("v2")
    assert room.full.is_set()
    stay.leave()
    other.leave()
    assert not room.full.is_set()


async def test_what_nobody_waits_for_is_set_aside(tmp_path: Path) -> None:
    room = Quarantine(tmp_path / "waiting")
    room.sweep(())
    for visit in ("v1", "v2"):
        (await filled(room, visit)).close()
    room.sweep({"v2"})
    assert (room.has("v1"), room.has("v2")) == (False, True)
    assert [path.name for path in (tmp_path / "aside").iterdir()] == ["v1"]


async def test_disk_that_refuses_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        await Quarantine(tmp_path / "file").open("v1")

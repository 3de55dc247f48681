"""Programs and arguments that are denied wherever they stand: they leave the task's own files, or the machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from .options import Argv

_BY_PURPOSE = {
    "gets the rights of another user": "sudo sudoedit su doas pkexec runuser gosu su-exec sg setpriv super calife op "
    "machinectl visudo",
    "stops the machine": "shutdown reboot halt poweroff init telinit kexec",
    "changes disks and file systems": "fdisk sfdisk cfdisk gdisk sgdisk cgdisk parted partprobe wipefs blkdiscard "
    "mke2fs mkswap mkdosfs mkntfs mkreiserfs swapon swapoff mount umount losetup cryptsetup hdparm sdparm nvme tune2fs "
    "e2fsck resize2fs badblocks dmsetup pvcreate pvremove vgcreate vgremove lvcreate lvremove mdadm zpool "
    "fsfreeze debugfs",
    "changes the kernel": "insmod rmmod modprobe depmod sysctl",
    "changes the firewall or the network": "iptables iptables-restore ip6tables ip6tables-restore nft ufw firewall-cmd "
    "ebtables arptables ipset ifconfig ifup ifdown",
    "changes users": "useradd userdel usermod adduser deluser groupadd groupdel groupmod addgroup delgroup passwd "
    "chpasswd chfn chsh vipw vigr gpasswd newusers",
    "leaves its own namespaces": "nsenter unshare chroot pivot_root switch_root capsh",
}
FORBIDDEN: Mapping[str, str] = {name: why for why, names in _BY_PURPOSE.items() for name in names.split()}
ORDINARY = frozenset({"init", "op", "super", "halt", "mount", "umount", "passwd", "reboot", "shutdown"})
"""Names that texts have as ordinary words, too, so that they are programs only where a command begins."""
HOME = "\1"
"""Stands for the home directory."""
_FORBIDDEN_PATTERN = re.compile(r"(?:mkfs|fsck)(?:\.\w+)?")
_SYSTEMCTL = re.compile(
    r"poweroff|reboot|halt|kexec|soft-reboot|suspend|hibernate|hybrid-sleep|suspend-then-hibernate|rescue"
    r"|emergency|exit|default|isolate|switch-root"
)
_DEVICE = re.compile(
    r"(?:.*=)?/+dev/+(?:(?:sd|hd|vd|xvd|nvme|mmcblk|loop|dm-|md|nbd|sr|ram|zram|fd\d|disk/|mapper/|block/|bus/)[^/]*.*"
    r"|mem|kmem|port|kmsg)"
)
_ROOT = re.compile(
    rf"/|{HOME}(?:root)?|/(?:bin|boot|dev|etc|home|lib|lib32|lib64|media|mnt|opt|proc|root|run|sbin|srv|sys|var)"
    r"|/usr(?:/(?:bin|lib|local|sbin))?"
)
_EVERYTHING = frozenset({"*", ".", "./", "./*", ".*", "$PWD"})


def why_forbidden(words: Sequence[str]) -> str | None:
    """Returns why a command is forbidden, or None."""
    name, arguments = name_of(words[0]), words[1:]
    if why := why_never(name):
        return why
    if name in ("systemctl", "loginctl") and any(map(_SYSTEMCTL.fullmatch, arguments)):
        return "stops the machine"
    if _acts_on_tree(name, arguments) and any(map(_is_root, arguments)):
        return "acts on everything below a directory of the system or the home directory"
    return None


def why_never(name: str) -> str | None:
    """Returns why a program is forbidden with any arguments, or None."""
    return "changes disks and file systems" if _FORBIDDEN_PATTERN.fullmatch(name) else FORBIDDEN.get(name)


def name_of(program: str) -> str:
    """Returns the name of a program, without its directory."""
    return program.rstrip("/").rpartition("/")[2]


def written_device(argv: Argv) -> str | None:
    """Returns the disk that a command which may write names, or None."""
    texts = (word.text for word in argv[1:] if name_of(argv[0].text) != "dd" or word.text.startswith("of="))
    return next((text.rpartition("=")[2] for text in texts if is_device(text)), None)


def is_device(text: str) -> bool:
    """Whether a text names a disk or the memory, also as in ``of=/dev/sda``."""
    return _DEVICE.fullmatch(re.sub(r"/(?:\./)+|/{2,}", "/", text)) is not None


def removes_root(commands: Iterable[Sequence[str]]) -> bool:
    """Whether the commands enter a directory of the system, or the home directory, and act on everything there."""
    enters = removes = False
    for name, *arguments in commands:
        operands = [text for text in arguments if not text.startswith("-")]
        enters |= name in ("cd", "pushd") and (not operands or any(map(_is_root, operands)))
        removes |= _acts_on_tree(name, arguments) and not _EVERYTHING.isdisjoint(arguments)
    return enters and removes


def _is_root(text: str) -> bool:
    """Whether a text names the root, a directory of the system, the home directory, or all that is in one."""
    path = re.sub(r"/(?:\.?/)*", "/", text)
    path = re.sub(r"(?<=/)\.?\*$|/\.$", "", path)
    path = re.sub(r"^/(?:\.\./?)+", "/", path)
    return bool(text) and _ROOT.fullmatch(path.rstrip("/") or "/") is not None


def _acts_on_tree(name: str, arguments: Sequence[str]) -> bool:
    if name == "find":
        return "-delete" in arguments
    recursive = re.compile(r"--no-preserve-root|--r.*|-(?!-).*[rR].*")
    return name in ("rm", "chmod", "chown", "chgrp") and any(map(recursive.fullmatch, arguments))

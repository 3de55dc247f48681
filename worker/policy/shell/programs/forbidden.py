"""Programs and arguments that are denied wherever they stand: they leave the task's own files, or the machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

from deputize.worker.policy.shell.judgement import Argv
from deputize.worker.policy.shell.names import names
from deputize.worker.policy.shell.words import HOME

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
    "leaves its own namespaces": "nsenter chroot pivot_root switch_root capsh",
}
FORBIDDEN: Mapping[str, str] = {name: why for why, names in _BY_PURPOSE.items() for name in names.split()}
_FORBIDDEN_PATTERN = re.compile(r"(?:mkfs|fsck)(?:\.\w+)?")
_SYSTEMCTL = names(
    "poweroff reboot halt kexec soft-reboot suspend hibernate hybrid-sleep suspend-then-hibernate rescue "
    "emergency exit default isolate switch-root"
)
_DEVICE = re.compile(
    r"(?:.*=)?/+dev/+(?:(?:sd|hd|vd|xvd|nvme|mmcblk|loop|dm-|md|nbd|sr|ram|zram|fd\d|disk/|mapper/|block/|bus/)[^/]*.*"
    r"|mem|kmem|port|kmsg)"
)
_SYSTEM = names("bin boot dev etc home lib lib32 lib64 media mnt opt proc root run sbin srv sys usr var")
_ROOTS = frozenset(
    {"/", HOME, f"{HOME}root"}
    | {f"/{each}" for each in _SYSTEM}
    | {f"/usr/{each}" for each in ("bin", "lib", "local", "sbin")}
)
_EVERYTHING = frozenset({"*", ".", "./", "./*", ".*", "$PWD"})
_RECURSIVE = frozenset({"rm", "chmod", "chown", "chgrp"})


def why_forbidden(argv: Argv) -> str | None:
    """Returns why a command is forbidden, or None. Its first word may be a path, or a pattern of file names."""
    name = program_name(argv)
    if argv[0].globs:
        name = next((each for each in FORBIDDEN if len(name.strip("*?")) > 1 and fnmatchcase(each, name)), name)
    if name in FORBIDDEN:
        return FORBIDDEN[name]
    if _FORBIDDEN_PATTERN.fullmatch(name):
        return "changes disks and file systems"
    texts = [word.text for word in argv[1:]]
    if name in ("systemctl", "loginctl") and _SYSTEMCTL & set(texts):
        return "stops the machine"
    if name in _RECURSIVE and _is_recursive(texts) and any(map(is_root, texts)):
        return "acts on everything below a directory of the system or the home directory"
    if name == "find" and "-delete" in texts and any(map(is_root, texts)):
        return "deletes everything below a directory of the system or the home directory"
    return None


def program_name(argv: Argv) -> str:
    """Returns the name of the program, without its directory."""
    return argv[0].text.rstrip("/").rpartition("/")[2]


def is_device(text: str) -> bool:
    """Whether a text names a disk or the memory, also as in ``of=/dev/sda``."""
    return _DEVICE.fullmatch(re.sub(r"/(?:\./)+|/{2,}", "/", text)) is not None


def is_root(text: str) -> bool:
    """Whether a text names the root, a directory of the system, the home directory, or all that is in one."""
    path = re.sub(r"/(?:\.?/)*", "/", text)
    path = re.sub(r"(?<=/)\.?\*$|/\.$", "", path)
    path = re.sub(r"^/(?:\.\./?)+", "/", path)
    return bool(text) and (path.rstrip("/") or "/") in _ROOTS


def enters_root(argv: Argv) -> bool:
    """Whether a command changes to a directory for which ``is_root`` holds."""
    if program_name(argv) not in ("cd", "pushd"):
        return False
    operands = [word.text for word in argv[1:] if not word.text.startswith("-")]
    return not operands or any(map(is_root, operands))


def removes_all(argv: Argv) -> bool:
    """Whether a command acts on everything in the directory where it runs."""
    texts = [word.text for word in argv[1:]]
    return program_name(argv) in _RECURSIVE and _is_recursive(texts) and bool(_EVERYTHING & set(texts))


def _is_recursive(options: list[str]) -> bool:
    return any(
        text in ("--no-preserve-root",)
        or (text.startswith("--r") and "--recursive".startswith(text))
        or (text.startswith("-") and not text.startswith("--") and ("r" in text or "R" in text))
        for text in options
    )

"""Parts that users and installed packages bring."""

import sys
import time

import pytest

from nacdrive.common.errors import UserError
from nacdrive.common.plugins import Registry, load_object


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, as a user has it; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        # Compiled modules of installed packages cannot be imported twice.
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def install(folder, distribution, group, **entries):
    """A distribution as pip leaves it: a folder of metadata on the path."""
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
    )
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@pytest.fixture
def registry():
    return Registry("fruit", "nacdrive.test_fruit", {"apple": "collections:OrderedDict", "pear": "collections:deque"})


def test_an_object_is_loaded_from_the_current_folder(folder):
    (folder / "my_car.py").write_text("class MyEnv:\n    class Inner:\n        x = 5\n")
    assert load_object("my_car:MyEnv").__name__ == "MyEnv"
    assert load_object("my_car:MyEnv.Inner").x == 5


def test_a_module_that_is_not_there_is_named(folder):
    with pytest.raises(UserError, match=r"no module 'my_ghost' for 'my_ghost:MyEnv'.*current folder"):
        load_object("my_ghost:MyEnv")


def test_a_package_without_the_module_is_named(folder):
    with pytest.raises(UserError, match=r"no module 'json.ghost'"):
        load_object("json.ghost:MyEnv")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import not_installed_anywhere", "ModuleNotFoundError: No module named 'not_installed_anywhere'"),
        ("def broken(:", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
    ids=["missing dependency", "syntax", "exits"],
)
def test_a_module_that_fails_says_why_in_one_sentence(folder, text, reason):
    (folder / "my_bad.py").write_text(text)
    with pytest.raises(UserError, match=r"cannot import 'my_bad' for 'my_bad:X': ") as caught:
        load_object("my_bad:X")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_attribute_is_named():
    with pytest.raises(UserError, match=r"module 'collections' has no 'Dict', which 'collections:Dict' asks for"):
        load_object("collections:Dict")


@pytest.mark.parametrize("reference", ["collections", ":X", "collections:", "a/b.py:X", "", "a:b:c"])
def test_other_forms_are_refused(reference):
    with pytest.raises(UserError, match=r"is not of the form module:Name"):
        load_object(reference)


def test_names_are_the_builtin_ones_then_the_added_ones(folder, registry):
    install(folder, "fruit-shop", registry.group, quince="collections:Counter", banana="collections:ChainMap")
    registry.register("cherry", dict)
    assert registry.names() == ("apple", "pear", "cherry", "banana", "quince")
    assert "quince" in registry and "cherry" in registry and "plum" not in registry
    assert registry.is_builtin("apple") and not registry.is_builtin("quince")


def test_every_kind_of_name_loads(folder, registry):
    from collections import Counter, OrderedDict, deque

    install(folder, "fruit-shop", registry.group, quince="collections:Counter")
    registry.register("cherry", dict)
    registry.register("plum", "collections:deque")
    assert registry.load("apple") is OrderedDict
    assert registry.load("quince") is Counter
    assert registry.load("cherry") is dict
    assert registry.load("plum") is deque
    assert registry.load("collections:Counter") is Counter


def test_a_package_that_comes_or_goes_is_noticed_in_the_same_process(folder, registry):
    install(folder, "fruit-shop", registry.group, quince="collections:Counter")
    assert "quince" in registry and "fig" not in registry
    time.sleep(0.02)  # a file system's clock has steps
    install(folder, "market", registry.group, fig="collections:deque")
    assert registry.names()[-2:] == ("fig", "quince")
    sys.path.remove(str(folder))
    assert registry.names() == ("apple", "pear")


def test_an_unknown_name_suggests_the_nearest_one(folder, registry):
    install(folder, "fruit-shop", registry.group, quince="collections:Counter")
    with pytest.raises(UserError, match=r"unknown fruit 'quinze': did you mean 'quince'\? known are apple, pear, q"):
        registry.load("quinze")


def test_two_packages_with_one_name_are_both_named(folder, registry):
    install(folder, "fruit-shop", registry.group, quince="collections:Counter")
    install(folder, "market", registry.group, quince="collections:deque")
    assert registry.names().count("quince") == 1
    with pytest.raises(UserError, match=r"'quince' is claimed by '(fruit-shop|market)' and by '(fruit-shop|market)'"):
        registry.load("quince")
    assert registry.load("apple")


def test_a_package_cannot_take_a_builtin_name(folder, registry):
    install(folder, "fruit-shop", registry.group, apple="collections:Counter")
    with pytest.raises(UserError, match=r"'apple' is claimed by nacdrive and by 'fruit-shop'"):
        registry.load("apple")


def test_a_package_that_does_not_load_is_named(folder, registry):
    install(folder, "fruit-shop", registry.group, quince="fruit_shop_gone:Quince")
    with pytest.raises(UserError, match=r"fruit 'quince' of the package 'fruit-shop' does not load: no module"):
        registry.load("quince")


def test_a_name_is_registered_once_but_may_be_defined_anew(registry):
    registry.register("cherry", dict)
    with pytest.raises(UserError, match="registered already"):
        registry.register("cherry", list)
    with pytest.raises(UserError, match="belongs to nacdrive"):
        registry.register("apple", list)

    def definition():
        class Plum:
            pass

        return Plum

    registry.register("plum", definition())
    second = definition()
    registry.register("plum", second)
    assert registry.load("plum") is second

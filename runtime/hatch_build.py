"""Take the module and the version from nacdrive's own tree; from beside this file inside an unpacked sdist."""

import re
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

MODULE, VERSION = "nacdrive_run.py", "version.txt"


def source(root, inside, outside):
    """The file ``inside`` this folder, or where nacdrive's tree has it."""
    here = Path(root) / inside
    return here if here.exists() else Path(root).parent / "nacdrive" / outside


class CustomBuildHook(BuildHookInterface):
    """Adds the module to wheel and sdist; the sdist also needs the file that holds the version."""

    def initialize(self, version, build_data):
        """See hatchling."""
        files = {str(source(self.root, MODULE, "drivers/onnx_runtime.py")): MODULE}
        if self.target_name == "sdist":
            files[str(source(self.root, VERSION, "common/version.py"))] = VERSION
        build_data["force_include"].update(files)


class CustomMetadataHook(MetadataHookInterface):
    """The version is that of nacdrive."""

    def update(self, metadata):
        """See hatchling."""
        text = source(self.root, VERSION, "common/version.py").read_text()
        metadata["version"] = re.search(r'__version__ = "(.+?)"', text).group(1)

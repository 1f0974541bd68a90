"""The test EC2: moto, with rules of EC2 that moto leaves out and a control plane has to survive.

`README.md` lists every rule with its source.
"""

import os
import pathlib

# Two images with known ids instead of moto's 1,300, which it would create at every reset. moto reads the
# variable when it is imported.
os.environ.setdefault("MOTO_AMIS_PATH", str(pathlib.Path(__file__).with_name("images.json")))

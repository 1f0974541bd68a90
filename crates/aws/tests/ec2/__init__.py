"""The test EC2: moto, with the rules it leaves out that a control plane has to live with.

Everything that it adds is listed in `README.md`, with what each rule rests on.
"""

import os
import pathlib

# Two images with known ids instead of moto's 1,300, which it makes anew at every reset. moto reads this
# when it is imported.
os.environ.setdefault("MOTO_AMIS_PATH", str(pathlib.Path(__file__).with_name("images.json")))

"""The test EC2: moto, with the rules it leaves out that a control plane has to live with.

Everything that it adds is listed in `README.md`, with what each rule rests on.
"""

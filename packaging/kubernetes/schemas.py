"""Writes JSON schemas of Kubernetes for kubeconform, from the wheel of kubernetes-validate.

    schemas.py WHEEL VERSION FOLDER

Each file of the wheel refers to one with all definitions, by an address that cannot be reached; here they are in one file.
"""
import json
import pathlib
import sys
import zipfile

KINDS = """configmap-v1 deployment-apps-v1 namespace-v1 networkpolicy-networking-v1 persistentvolumeclaim-v1
    poddisruptionbudget-policy-v1 service-v1 serviceaccount-v1"""

wheel, version, folder = sys.argv[1:]
inside = zipfile.ZipFile(wheel)
prefix = f"kubernetes_validate/kubernetes-json-schema/v{version}-local-strict/"
definitions = json.loads(inside.read(prefix + "_definitions.json"))["$defs"]
for kind in KINDS.split():
    schema = json.loads(inside.read(f"{prefix}{kind}.json").replace(b"/api/_definitions.json#", b"#"))
    del schema["$id"]
    schema["$defs"] = definitions
    (pathlib.Path(folder) / f"{kind}.json").write_text(json.dumps(schema))

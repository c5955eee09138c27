"""Prints what prefab and the Android Gradle plugin would find in an AAR: look.py FILE (used by
tests/packaging/android.rs)."""

import json
import sys
import xml.etree.ElementTree
import zipfile

ANDROID = "{http://schemas.android.com/apk/res/android}"
with zipfile.ZipFile(sys.argv[1]) as aar:
    names = set(aar.namelist())
    manifest = xml.etree.ElementTree.fromstring(aar.read("AndroidManifest.xml"))
    print("api", manifest.find("uses-sdk").get(ANDROID + "minSdkVersion"), manifest.get("package"))
    with aar.open("classes.jar") as jar, zipfile.ZipFile(jar) as classes:
        print("classes", len(classes.namelist()))
    package = json.loads(aar.read("prefab/prefab.json"))
    print("package", package["schema_version"], package["name"], package["version"], package["dependencies"])
    module = json.loads(aar.read("prefab/modules/kvstore/module.json"))
    print("module", module["export_libraries"], module["library_name"])
    libraries = "prefab/modules/kvstore/libs/"
    for folder in sorted({name[len(libraries) :].split("/")[0] for name in names if name.startswith(libraries)}):
        abi = json.loads(aar.read(f"{libraries}{folder}/abi.json"))
        elf = aar.read(f"{libraries}{folder}/{module['library_name']}.so")
        print(folder, sorted(abi.items()), "ELF of", {1: 32, 2: 64}[elf[4]], "bits")
    print("headers", *sorted(name.split("/include/")[1] for name in names if name.endswith(".h") or "time.hpp" in name))

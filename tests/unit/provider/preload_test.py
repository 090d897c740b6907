# The preload as programs meet it: harmless to those without RDMA, and clear when it cannot serve.
# Usage: preload_test.py PRELOAD PLUGIN
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PRELOAD, PLUGIN = (os.path.abspath(path) for path in sys.argv[1:3])


def run(*command, preload=PRELOAD, **environment):
    """The finished command, with nothing of the caller's uroce settings."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("UROCE_")}
    clean.update(LD_PRELOAD=preload, **environment)
    return subprocess.run(command, env=clean, capture_output=True, text=True, timeout=60)


class Preload(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="uroce-preload-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def list_devices(self, **settings):
        return run("ibv_devices", UROCE_RUN_DIR=self.folder, **settings)

    def test_it_needs_libc_only(self):
        dynamic = subprocess.check_output(["readelf", "-d", PRELOAD], text=True)
        self.assertEqual(re.findall(r"NEEDED.*\[(.*)\]", dynamic), ["libc.so.6"])

    def test_the_plugin_exports_its_table_only(self):
        symbols = subprocess.check_output(["nm", "-D", "--defined-only", PLUGIN], text=True)
        self.assertEqual([line.split()[-1] for line in symbols.splitlines()], ["uroce_engine"])

    def test_a_program_without_rdma_does_not_notice_it(self):
        done = run("sh", "-c", "cat /proc/$$/maps")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("liburoce-preload", done.stdout)
        self.assertNotIn("rdmav34", done.stdout)
        self.assertNotIn("libibverbs", done.stdout)

    def test_devices_are_listed(self):
        done = self.list_devices()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(re.findall(r"uroce\d", done.stdout), ["uroce0", "uroce1"])

    def test_a_wrong_setting_is_one_message_that_names_it(self):
        done = self.list_devices(UROCE_MTU="17")
        self.assertNotIn("uroce0", done.stdout)
        named = [line for line in done.stderr.splitlines() if "UROCE_MTU" in line]
        self.assertEqual(len(named), 1, done.stderr)
        self.assertIn("17", named[0])

    def test_without_its_plugin_it_says_so_and_serves_the_kernel_list(self):
        alone = shutil.copy(PRELOAD, self.folder)
        done = run("ibv_devices", preload=alone, UROCE_RUN_DIR=self.folder)
        self.assertNotIn("uroce0", done.stdout)
        self.assertIn("no plug-in beside the preload", done.stderr)

    def test_a_broken_plugin_is_named(self):
        alone = shutil.copy(PRELOAD, self.folder)
        with open(os.path.join(self.folder, os.path.basename(PLUGIN)), "w") as broken:
            broken.write("not a library")
        done = run("ibv_devices", preload=alone, UROCE_RUN_DIR=self.folder)
        self.assertNotIn("uroce0", done.stdout)
        self.assertIn("cannot load the plug-in", done.stderr)

    def test_it_finds_the_plugin_where_both_are_installed(self):
        places = [os.path.join(self.folder, name) for name in ("uroce", "libibverbs")]
        for place, library in zip(places, (PRELOAD, PLUGIN)):
            os.mkdir(place)
            shutil.copy(library, place)
        installed = os.path.join(places[0], os.path.basename(PRELOAD))
        done = run("ibv_devices", preload=installed, UROCE_RUN_DIR=self.folder)
        self.assertIn("uroce0", done.stdout)


unittest.main(argv=sys.argv[:1])

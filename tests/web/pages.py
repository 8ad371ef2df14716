"""Pages in a headless browser with a WebGPU adapter on the processor; scripts report to a server.

A script is the body of an async function of ES modules. What it returns arrives here, with typed
arrays as NumPy's.
"""

import base64
import functools
import http.server
import json
import queue
import subprocess
import tempfile
import threading

import numpy as np

from capabilities import browser

FLAGS = ["--headless=new", "--no-sandbox", "--disable-background-networking", "--no-first-run",
         "--disable-sync", "--disable-quic", "--disable-gpu-shader-disk-cache"]
ADAPTER = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"]
HARNESS = """\
<!doctype html><meta charset="utf-8"><body><script type="module">
const encode = (bytes) => {
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) {
    text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  }
  return btoa(text);
};
const plain = (key, value) => (ArrayBuffer.isView(value) ? {
  array: value.constructor.name.replace("Array", "").toLowerCase().replace("big", ""),
  bytes: encode(new Uint8Array(value.buffer, value.byteOffset, value.byteLength)) } : value);
const data = async (name, kind) => new kind(await (await fetch(name)).arrayBuffer());
const failed = async (make) => {
  try { await make(); } catch (error) { return `${error.name}: ${error.message}`; }
  return null;
};
const frame = async (url) => { // a page in this page, once its status says no more "Loading"
  const made = document.body.appendChild(document.createElement("iframe"));
  made.src = url;
  await new Promise((done) => { made.onload = done; });
  const status = () => made.contentDocument.getElementById("status").textContent;
  while (status().startsWith("Loading")) await new Promise((done) => { setTimeout(done, 20); });
  return made.contentDocument;
};
const wait = async (test) => {
  while (!test()) await new Promise((done) => { setTimeout(done, 20); });
};
let said;
try {
  said = { result: await (async () => { SCRIPT })() };
} catch (error) {
  said = { error: `${error.name}: ${error.message}\\n${error.stack}` };
}
await fetch("/report", { method: "POST", body: JSON.stringify(said, plain) });
</script>
"""


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder as any static host does, and takes reports."""

    reports: queue.Queue

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()
        self.reports.put(json.loads(body))

    def log_message(self, *_):
        pass


def run(folder, script, adapter=True, timeout=100):
    """Run a script on a page of a folder; return what it returns."""
    (folder / "harness.html").write_text(HARNESS.replace("SCRIPT", script))
    reports = queue.Queue()
    handler = type("Handler", (_Handler,), {"reports": reports})
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as user:
        process = subprocess.Popen(
            [browser(), *FLAGS, *(ADAPTER if adapter else ()), f"--user-data-dir={user}",
             f"http://127.0.0.1:{server.server_port}/harness.html"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            said = reports.get(timeout=timeout)
        finally:
            process.terminate()
            process.wait()
            server.shutdown()
            server.server_close()
    assert "error" not in said, said["error"]
    return _arrays(said["result"])


def _arrays(value):
    """Return what was reported, with arrays of NumPy."""
    if isinstance(value, dict) and set(value) == {"array", "bytes"}:
        return np.frombuffer(base64.b64decode(value["bytes"]), value["array"])
    if isinstance(value, dict):
        return {k: _arrays(v) for k, v in value.items()}
    return [_arrays(v) for v in value] if isinstance(value, list) else value


def text_of_file(path):
    """Return the text of a page that is opened as a file."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as user:
        return subprocess.run(
            [browser(), *FLAGS, f"--user-data-dir={user}", "--dump-dom", path.as_uri()],
            capture_output=True, text=True, check=True, timeout=100).stdout

"""Tasks of a script that trains a small network, as descriptions have them."""

VARIABLES = {"net": "network", "data": "data", "ready": "compiled", "done": "network"}
MODEL = {"task": "load_model", "network": "small", "model": "net"}
READ = {"task": "load_npz", "path": "rows.npz", "data": "data"}
READY = {
    "task": "compile",
    "model": "net",
    "loss": "cross_entropy",
    "metrics": ["accuracy"],
    "compiled": "ready",
}
TRAIN = {"task": "train", "compiled": "ready", "data": "data", "epochs": 3, "model": "done"}

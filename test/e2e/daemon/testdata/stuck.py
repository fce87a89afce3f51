# A task of each kind that is stuck for a while, each time because of stuck-peer.
import fcntl, os, socket, sys, time


def name(comm):
    with open("/proc/self/comm", "w") as f:
        f.write(comm)


def peer(act):
    pid = os.fork()
    if pid == 0:
        name("stuck-peer")
        act()
        os._exit(0)
    return pid


def asked(path):
    mine, its = socket.socketpair()

    def serve():
        its.recv(1)
        time.sleep(STUCK)
        its.send(b"x")

    peer(serve)
    time.sleep(0.1)
    mine.send(b"x")
    mine.recv(1)


def room(path):
    r, w = os.pipe()

    def read():
        os.close(w)
        os.read(r, 1)
        time.sleep(STUCK)
        while os.read(r, 1 << 16):
            pass

    peer(read)
    os.close(r)
    time.sleep(0.1)
    os.write(w, b"x")
    time.sleep(0.1)
    os.write(w, b"x" * (1 << 17))
    os.close(w)


def locked(path):
    def hold():
        with open(path, "w") as f:
            fcntl.lockf(f, fcntl.LOCK_EX)
            time.sleep(STUCK)

    peer(hold)
    time.sleep(0.1)
    with open(path, "w") as f:
        fcntl.lockf(f, fcntl.LOCK_EX)


def child(path):
    os.waitpid(peer(lambda: time.sleep(STUCK)), 0)


STUCK = 1.2
name("stuck-" + sys.argv[1])
globals()[sys.argv[1]](sys.argv[2])

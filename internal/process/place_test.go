package process

import (
	"strings"
	"testing"
	"unicode/utf8"

	"gotest.tools/v3/assert"
)

// TestPlaceOf: paths as kubelet, container runtimes and systemd make them.
func TestPlaceOf(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	const uid, under = "1f6b2a4c-9d3e-4f70-8a1b-2c3d4e5f6071", "1f6b2a4c_9d3e_4f70_8a1b_2c3d4e5f6071"
	static := strings.Repeat("0a", 16)
	for path, want := range map[string]Place{
		"":                       {},
		"/":                      {},
		"/init.scope":            {Unit: "init.scope"},
		"/system.slice":          {},
		"/system.slice/":         {},
		"/a/b":                   {},
		"/..":                    {},
		"//x.service":            {Unit: "x.service"},
		"/.service":              {},
		"/system.slice/-.mount":  {Unit: "-.mount"},
		"/system.slice/_a.scope": {Unit: "a.scope"},

		// systemd
		"/system.slice/nginx.service":                                                   {Unit: "nginx.service"},
		"/system.slice/system-postgresql.slice/postgresql@15-main.service":              {Unit: "postgresql@15-main.service"},
		"/system.slice/nginx.service/payload/other.service":                             {Unit: "nginx.service"},
		"/user.slice/user-1000.slice/session-3.scope":                                   {Unit: "session-3.scope"},
		"/user.slice/user-1000.slice/user@1000.service":                                 {Unit: "user@1000.service"},
		"/user.slice/user-1000.slice/user@1000.service/init.scope":                      {Unit: "user@1000.service"},
		"/user.slice/user-1000.slice/user@1000.service/app.slice/app-x.scope/y.service": {Unit: "app-x.scope"},

		// Kubernetes, systemd's driver
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under + ".slice/cri-containerd-" + id + ".scope": {
			Unit: "cri-containerd-" + id + ".scope", Container: id, Runtime: Containerd, PodUID: uid,
		},
		"/kubepods.slice/kubepods-pod" + under + ".slice/crio-" + id + ".scope": {
			Unit: "crio-" + id + ".scope", Container: id, Runtime: CRIO, PodUID: uid,
		},
		"/kubepods.slice/kubepods-pod" + under + ".slice/crio-" + id + ".scope/container": {
			Unit: "crio-" + id + ".scope", Container: id, Runtime: CRIO, PodUID: uid,
		},
		"/kubepods.slice/kubepods-pod" + under + ".slice/crio-conmon-" + id + ".scope": {
			Unit: "crio-conmon-" + id + ".scope", PodUID: uid,
		},
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + static + ".slice/docker-" + id + ".scope": {
			Unit: "docker-" + id + ".scope", Container: id, Runtime: Docker, PodUID: static,
		},
		"/system.slice/containerd.service/kubepods-besteffort-pod" + under + ".slice:cri-containerd:" + id: {
			Unit: "containerd.service", Container: id, Runtime: Containerd, PodUID: uid,
		},
		"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + under + ".slice/cri-containerd-" + id + ".scope": {
			Unit: "cri-containerd-" + id + ".scope", Container: id, Runtime: Containerd, PodUID: uid,
		},
		// Kubernetes, the cgroupfs driver
		"/kubepods/burstable/pod" + uid + "/" + id:         {Container: id, PodUID: uid},
		"/kubepods/pod" + uid + "/" + id:                   {Container: id, PodUID: uid},
		"/kubepods/besteffort/pod" + uid:                   {PodUID: uid},
		"/kubepods/besteffort/pod" + uid + "/crio-" + id:   {Container: id, Runtime: CRIO, PodUID: uid},
		"/kubepods/besteffort/podcast/" + id:               {Container: id},
		"/kubepods/burstable/pod" + strings.ToUpper(uid):   {},
		"/docker/" + id + "/kubepods/pod" + uid + "/" + id: {Container: id, PodUID: uid},
		"/k8s.io/" + id: {Container: id},

		// Docker, Podman, containerd
		"/docker/" + id:                          {Container: id, Runtime: Docker},
		"/system.slice/docker-" + id + ".scope":  {Unit: "docker-" + id + ".scope", Container: id, Runtime: Docker},
		"/libpod_parent/libpod-" + id:            {Container: id, Runtime: Podman},
		"/machine.slice/libpod-" + id + ".scope": {Unit: "libpod-" + id + ".scope", Container: id, Runtime: Podman},
		"/system.slice/nerdctl-" + id + ".scope": {Unit: "nerdctl-" + id + ".scope", Container: id, Runtime: Containerd},
		"/libpod_parent/libpod-conmon-" + id:     {},
		"/machine.slice/libpod-" + id + ".scope/container": {
			Unit: "libpod-" + id + ".scope", Container: id, Runtime: Podman,
		},
		"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id + ".scope/container": {
			Unit: "libpod-" + id + ".scope", Container: id, Runtime: Podman,
		},

		// LXC, systemd-nspawn
		"/lxc.payload.web1/system.slice/x.service": {Container: "web1", Runtime: LXC},
		"/lxc/web1":         {Container: "web1", Runtime: LXC},
		"/lxc.monitor.web1": {},
		"/machine.slice/systemd-nspawn@box.service/payload/system.slice": {
			Unit: "systemd-nspawn@box.service", Container: "box", Runtime: Nspawn,
		},
		`/machine.slice/machine-my\x2dbox.scope/payload`: {Unit: `machine-my\x2dbox.scope`, Container: "my-box", Runtime: Nspawn},
		`/machine.slice/machine-qemu\x2d1\x2dvm.scope`:   {Unit: `machine-qemu\x2d1\x2dvm.scope`},
	} {
		assert.Check(t, PlaceOf(path) == want, "%s: got %+v, want %+v", path, PlaceOf(path), want)
	}
}

func FuzzPlaceOf(f *testing.F) {
	f.Add("/kubepods/pod1f6b2a4c-9d3e-4f70-8a1b-2c3d4e5f6071/" + strings.Repeat("a", 64))
	f.Add("/user@1.service/machine-.scope/payload")
	f.Fuzz(func(t *testing.T, path string) {
		p := PlaceOf(path)
		for _, s := range []string{p.Unit, p.Container, p.PodUID} {
			assert.Check(t, len(s) <= len(path) && !strings.Contains(s, "/"), "%q: %+v", path, p)
		}
		assert.Check(t, p.Container == ContainerID(path) || path == "/", "%q: %+v", path, p)
	})
}

// TestTitle: what processes call themselves, and nothing else that is in their arguments.
func TestTitle(t *testing.T) {
	for _, test := range []struct{ cmdline, comm, want string }{
		{"", "x", ""},
		{"\x00\x00", "x", ""},
		{"sleep\x0060\x00", "sleep", ""},
		{"/usr/sbin/cron\x00", "cron", ""},
		{"mysqld\x00--password=secret word\x00", "mysqld", ""},

		// titles
		{"postgres: 15/main: checkpointer \x00\x00\x00\x00", "postgres", "postgres: 15/main: checkpointer"},
		{"postgres: app orders [local] idle in transaction\x00", "postgres", "postgres: app orders [local]"},
		{"postgres: 15/main: app orders 10.0.0.5(51234) SELECT waiting", "postgres", "postgres: 15/main: app orders 10.0.0.5(51234)"},
		{"postgres: a (b) c() ::1(5)x", "postgres", "postgres: a (b) c() ::1(5)x"},
		{"other: app [local] idle", "other", "other: app [local] idle"},
		{"nginx: worker process\x00\x00", "nginx", "nginx: worker process"},
		{"nginx: master process /usr/sbin/nginx -c /etc/secret", "nginx", "nginx: master process /usr/sbin/nginx"},
		{"redis-server 127.0.0.1:6379\x00", "redis-server", "redis-server 127.0.0.1:6379"},
		{"/usr/bin/redis-server *:6379 [cluster]", "redis-server", "redis-server *:6379 [cluster]"},
		{"/opt/chrome --type=renderer --token=secret", "chrome", ""},
		{"-bash", "bash", ""},
		{"a\x1b[31mb c\nd", "x", `a\x1b[31mb c d`},
		{strings.Repeat("long title ", 100), "x", "long"},

		// Java
		{"/usr/bin/java\x00-Xmx1g\x00-cp\x00/a.jar:/b.jar\x00-Dpassword=secret\x00org.example.Main\x00--secret\x00", "java", "org.example.Main"},
		{"java\x00-jar\x00/srv/app/shop-1.2.jar\x00secret\x00", "java", "shop-1.2.jar"},
		{"java\x00--module-path\x00/mods\x00-m\x00com.example.app/com.example.Main\x00", "java", "com.example.Main"},
		{"java\x00--patch-module\x00java.base=/secret\x00--enable-native-access\x00ALL-UNNAMED\x00org.example.Main\x00", "java", "org.example.Main"},
		{"java\x00--enable-native-access=ALL-UNNAMED\x00org.example.Main\x00", "java", "org.example.Main"},
		{"java\x00-d\x00java.base\x00", "java", ""},
		{"java\x00@/etc/app.args\x00", "java", ""},
		{"java\x00-version\x00", "java", ""},
		{"java\x00-cp\x00", "java", ""},
		{"java\x00Hello.java\x00", "java", "Hello.java"},
		{"java\x00/src/Hello.java\x00", "java", "Hello.java"},

		// scripts
		{"python3\x00/srv/app.py\x00--password\x00secret\x00", "python3", "app.py"},
		{"/usr/bin/python3.11\x00-u\x00-W\x00ignore\x00./app.py\x00", "python3.11", "app.py"},
		{"/usr/bin/python3\x00/usr/bin/app\x00", "app", ""},
		{"python3\x00-m\x00http.server\x008000\x00", "python3", "http.server"},
		{"python3\x00-c\x00secret()\x00", "python3", ""},
		{"python3\x00-Ic\x00secret()\x00", "python3", ""},
		{"python3\x00-\x00secret\x00", "python3", ""},
		{"python3\x00-mjson.tool\x00secret.json\x00", "python3", ""},
		{"python3\x00-Wignore\x00app.py\x00", "python3", "app.py"},
		{"python3\x00", "python3", ""},
		{"node\x00--require\x00/x/hook.js\x00--max-old-space-size=100\x00/srv/server.js\x00secret\x00", "node", "server.js"},
		{"node\x00-e\x00secret()\x00", "node", ""},
		{"node\x00server.js\x00", "MainThread", "server.js"},
		{"/usr/bin/python3\x00a-long-name-for-it.py\x00", "a-long-name-for", "a-long-name-for-it.py"},
		{"/usr/bin/python3\x00/srv/app.py\x00", "python3.11", "app.py"},
		{"/usr/bin/python3\x00/srv/app.py\x00", "loader", "loader of app.py"},
		{"/usr/bin/python3\x00-c\x00secret()\x00", "loader", ""},
		{"ruby\x00-Ilib\x00-I\x00more\x00bin/rails\x00server\x00", "ruby", "rails"},
		{"ruby\x00-ne\x00secret\x00", "ruby", ""},
		{"perl\x00-w\x00/usr/sbin/munin-node\x00", "perl", "munin-node"},
		{"perl\x00-lne\x00secret\x00", "perl", ""},
		{"perl\x00-MData::Dumper\x00-e\x00secret\x00", "perl", ""},
		{"python3\x00/\x00", "python3", ""},
	} {
		got := title([]byte(test.cmdline), test.comm)
		if test.want == "long" {
			assert.Check(t, len(got) <= maxTitle && strings.HasPrefix(got, "long title"), "%q", got)
			continue
		}
		assert.Check(t, got == test.want, "%q: got %q, want %q", test.cmdline, got, test.want)
	}
}

func FuzzTitle(f *testing.F) {
	f.Add([]byte("python3\x00-W\x00x\x00y.py"), "python3")
	f.Add([]byte("java\x00-jar"), "java")
	f.Add([]byte("\x00-"), "")
	f.Fuzz(func(t *testing.T, line []byte, comm string) {
		got := title(line, comm)
		assert.Check(t, len(got) <= maxTitle && utf8.ValidString(got) && !strings.ContainsAny(got, "\x00\n\x1b"), "%q: %q", line, got)
	})
}

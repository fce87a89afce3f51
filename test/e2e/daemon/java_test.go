package daemon

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
)

// startJava compiles a program of package org.example and runs it, by a user, until the end of the test.
func startJava(t *testing.T, uid int, class, source string, args ...string) (pid int) {
	t.Helper()
	java, javac := needTool(t, "java", "openjdk-17-jdk-headless"), needTool(t, "javac", "openjdk-17-jdk-headless")
	dir := publicDir(t, "")
	file := writeFile(t, filepath.Join(dir, class+".java"), "package org.example;\n"+source, 0o644)
	out, err := exec.CommandContext(t.Context(), javac, "-d", dir, file).CombinedOutput()
	assert.NilError(t, err, "%s", out)
	args = append([]string{"-XX:-UsePerfData", "-Dpassword=secret", "-cp", dir}, args...)
	cmd := exec.CommandContext(t.Context(), java, append(args, "org.example."+class, "--secret")...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

// TestJavaTitle: a real JVM is called by its main class, and no other argument is told.
func TestJavaTitle(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(entry("nap", "offcpu", "10ms", fmt.Sprintf("{uid: %d}", uid), "snapshot: false")))
	pid := startJava(t, uid, "Orders", `
class Orders {
	public static void main(String[] a) throws Exception { while (true) Thread.sleep(20); }
}`, "-Xmx64m")
	eventually(t, "the JVM is told by its main class", func() bool {
		list := d.events("nap")
		return len(list) > 20 && list[len(list)-1].Task.Title == "org.example.Orders"
	})
	for _, o := range d.events("nap") {
		title := o.Task.Title
		assert.Check(t, (o.Partial || title == "org.example.Orders") && o.Task.PID == pid && !strings.Contains(o.Task.Name(), "secret"), "%+v", o.Task)
	}
}

// TestJavaSafepoint: a thread of a real JVM that stands still while garbage is collected holds
// no lock, and waits for none.
func TestJavaSafepoint(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(entry("stop", "offcpu", "25ms", fmt.Sprintf("{uid: %d, comm: tc-request}", uid),
		"stacks: [kernel, user]", "snapshot: {after: 10ms, every: 10ms, burst: 10}")))
	startJava(t, uid, "Collects", `
class Collects {
	public static void main(String[] a) throws Exception {
		int[][] kept = new int[500000][];
		for (int i = 0; i < kept.length; i++) kept[i] = new int[30];
		new Thread(() -> { for (long n = 0; ; n++) kept[0][0] += n; }, "tc-request").start();
		while (true) { System.gc(); Thread.sleep(50); }
	}
}`, "-Xmx300m", "-XX:+UseSerialGC")
	eventually(t, "a collection is explained", func() bool {
		for _, o := range d.events("stop") {
			if o.Explained != nil && strings.Contains(o.Explained.Verdict, " stopped at a safepoint until VM Thread of org.example.Collects ") {
				return true
			}
		}
		return false
	})
	for _, o := range d.events("stop") {
		if o.Explained != nil {
			assert.Check(t, !strings.Contains(o.Explained.Verdict, " a mutex "), "%s", o.Explained.Verdict)
		}
	}
}

package rules

import (
	"testing"

	"gotest.tools/v3/assert"
)

func TestPlaces(t *testing.T) {
	at := Place{
		Cgroup: "/kubepods/x", Unit: "cri-containerd-ab12.scope", Container: "ab12", ContainerName: "app", Pod: "web-1", Namespace: "shop",
	}
	outside := Place{Cgroup: "/system.slice/nginx.service", Unit: "nginx.service"}
	for _, test := range []struct {
		when        Match
		in, outside bool
	}{
		{Match{}, true, true},
		{Match{Pod: []string{"web-*"}}, true, false},
		{Match{Pod: []string{"*"}}, true, false},
		{Match{NotPod: []string{"*"}}, false, true},
		{Match{Pod: []string{"api-*", "web-?"}, Namespace: []string{"shop"}}, true, false},
		{Match{Pod: []string{"web-*"}, Namespace: []string{"other"}}, false, false},
		{Match{Pod: []string{"web-*"}, NotContainer: []string{"app"}}, false, false},
		{Match{NotContainer: []string{"istio-*"}}, true, true},
		{Match{Container: []string{"app"}}, true, false},
		{Match{Container: []string{"ab*"}}, true, false},
		{Match{Unit: []string{"nginx.service"}}, false, true},
		{Match{Unit: []string{"*.service"}, Cgroup: []string{"/system.slice/**"}}, false, true},
		{Match{Unit: []string{"*.service"}, Cgroup: []string{"/other/**"}}, false, false},
		{Match{NotUnit: []string{"nginx.*"}, NotCgroup: []string{"/x"}}, true, false},
	} {
		got, other := test.when.Matches(&Facts{Place: at, Syscall: -1}), test.when.Matches(&Facts{Place: outside, Syscall: -1})
		assert.Check(t, got == test.in && other == test.outside, "%+v: %v and %v", test.when, got, other)
	}
}

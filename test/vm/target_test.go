package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestNewestFirst(t *testing.T) {
	packages := strings.Fields(`
		linux-image-6.1.0-9-cloud-amd64 linux-image-6.1.0-56-cloud-amd64 linux-image-6.1.0-56-cloud-amd64-unsigned
		linux-image-6.1.0-47-cloud-amd64 linux-image-6.1.0-56-rt-amd64 linux-image-6.1.0-57-amd64
		linux-image-6.12.9+bpo-cloud-amd64 linux-image-6.12.117+deb12-cloud-amd64 linux-image-6.12.101+deb13-cloud-amd64
		linux-image-6.12.117+deb12-rt-amd64-dbg linux-image-6.12.90+deb12-rt-amd64 linux-image-cloud-amd64
		linux-image-6.1.0-56-cloud-amd64 linux-image-7.2.3+deb14-cloud-amd64`)
	for _, test := range []struct{ target, want string }{
		{"6.1", "linux-image-6.1.0-56-cloud-amd64 linux-image-6.1.0-47-cloud-amd64 linux-image-6.1.0-9-cloud-amd64"},
		{"6.1-rt", "linux-image-6.1.0-56-rt-amd64"},
		{"6.12", "linux-image-6.12.117+deb12-cloud-amd64 linux-image-6.12.101+deb13-cloud-amd64 linux-image-6.12.9+bpo-cloud-amd64"},
		{"6.12-rt", "linux-image-6.12.90+deb12-rt-amd64"},
		{"sid", "linux-image-7.2.3+deb14-cloud-amd64 linux-image-6.12.117+deb12-cloud-amd64 " +
			"linux-image-6.12.101+deb13-cloud-amd64 linux-image-6.12.9+bpo-cloud-amd64"},
	} {
		picked, err := pick(test.target, "", everyTurn)
		assert.NilError(t, err)
		got := picked[0].newestFirst(packages)
		assert.Check(t, slices.Equal(got, strings.Fields(test.want)),
			"%s: got %q, want %q", test.target, got, test.want)
	}
}

func TestPick(t *testing.T) {
	all, err := pick("", "", everyTurn)
	assert.Check(t, err == nil && len(all) == len(targets),
		"no list: got %d targets and %v, want all", len(all), err)
	_, err = pick("6.1,5.10", "", everyTurn)
	assert.Check(t, is.ErrorContains(err, `unknown kernel "5.10": known are 6.1, `), "unknown kernel")
}

// Every kernel has its turn, and each turn has kernels of both versions and both kinds, and each
// test but the long ones. After all turns each kernel has run each test.
func TestTurns(t *testing.T) {
	tests := strings.Fields("TestA TestDemo TestB TestC TestProbes TestD TestE TestShippedLoad TestDemoAlike")
	all := 2 * turns * len(longTests)
	seen := map[string]bool{}
	for turn := range all {
		picked, err := pick("", "", turn)
		assert.NilError(t, err)
		list := strings.Join(names(picked), " ")
		for _, want := range []string{"6.1", "6.12", "-rt", "-idle"} {
			assert.Check(t, is.Contains(list, want), "turn %d", turn)
		}
		in, long := map[string]int{}, 0
		for _, p := range picked {
			if p.share == nil {
				assert.Check(t, is.Equal(p.name, "6.12-idle"))
				continue
			}
			pattern := regexp.MustCompile(p.share.of(tests))
			for _, test := range tests {
				if !pattern.MatchString(test) {
					continue
				}
				if in[test]++; slices.Contains(longTests, test) {
					long++
				}
				seen[p.name+" "+test] = true
			}
		}
		assert.Check(t, is.Equal(long, 1), "turn %d: long tests", turn)
		for _, test := range tests {
			if !slices.Contains(longTests, test) {
				assert.Check(t, is.Equal(in[test], 1), "turn %d: %s", turn, test)
			}
		}
	}
	for _, target := range targets {
		for _, test := range tests {
			assert.Check(t, target.turn < 0 || seen[target.name+" "+test], "%s never ran %s", target.name, test)
		}
	}
	picked, err := pick("", "TestBTF", 1)
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(names(picked), []string{"6.1-rt", "6.12"}))
	assert.Check(t, picked[0].share == nil, "a pattern's tests are shared out")
}

func TestModuleName(t *testing.T) {
	for path, want := range map[string]string{
		"a/null_blk.ko": "null_blk", "a/dm-mod.ko.xz": "dm_mod", "loop.ko.zst": "loop", "modules.dep": "",
	} {
		got, ok := moduleName(path)
		assert.Check(t, got == want && ok == (want != ""), "%s: got %q, %t", path, got, ok)
	}
}

func TestParseDepends(t *testing.T) {
	for info, want := range map[string][]string{
		"license=GPL\x00depends=configfs,dm-mod\x00name=x\x00": {"configfs", "dm_mod"},
		"depends=\x00": nil,
		"":             nil,
	} {
		got := parseDepends([]byte(info))
		assert.Check(t, slices.Equal(got, want), "%q: got %q, want %q", info, got, want)
	}
}

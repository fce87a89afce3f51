package rules_test

import (
	"fmt"
	"log"

	"github.com/tailcam/tailcam/rules"
)

func ExampleParse() {
	list, err := rules.Parse("disk.yaml", []byte(`
rules:
  - name: disk
    track: block
    threshold: 50ms
    overrides:
      - when: {op: flush}
        threshold: 500ms
`), &rules.LocalMachine{})
	if err != nil {
		log.Fatal(err)
	}
	disk := &list[0]
	fmt.Println(disk.Name, disk.Track)
	fmt.Println("read: ", disk.LimitsFor(&rules.Facts{Op: rules.Read}).Threshold)
	fmt.Println("flush:", disk.LimitsFor(&rules.Facts{Op: rules.Flush}).Threshold)
	// Output:
	// disk block
	// read:  50ms
	// flush: 500ms
}

// All errors are reported at once, each with its position and what is allowed.
func ExampleParse_errors() {
	_, err := rules.Parse("slow.yaml", []byte(`
rules:
  - name: slow
    track: wakup
    threshold: 5
`), &rules.LocalMachine{})
	fmt.Println(err)
	// Output:
	// slow.yaml:4:12: unknown track "wakup", did you mean "wakeup"; allowed: wakeup, offcpu, syscall, block, irq, softirq, pair, chain, span, workqueue, activity, trigger
	// slow.yaml:5:16: threshold 5 has no unit; allowed: a duration from 1us to 1h, such as 5ms
}

func ExampleLoad() {
	list, err := rules.Load([]string{"/etc/tailcam/rules.d"}, &rules.LocalMachine{})
	if err != nil {
		log.Fatal(err)
	}
	for i := range list {
		fmt.Println(list[i].Pos, list[i].Name)
	}
}

func ExampleCgroupMatch() {
	for _, path := range []string{"/system.slice", "/system.slice/ssh.service", "/user.slice"} {
		fmt.Println(path, rules.CgroupMatch("/system.slice/**", path))
	}
	// Output:
	// /system.slice true
	// /system.slice/ssh.service true
	// /user.slice false
}

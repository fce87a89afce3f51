package boot

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Module is a kernel module.
type Module struct {
	Name   string   // as in /proc/modules
	Params string   // as insmod takes them
	Needs  []string // what is loaded before it
	ByTest bool     // a test loads it, not init
}

// Path is the place of the module in the initramfs.
func (m Module) Path() string { return "/modules/" + m.Name + ".ko" }

// ReadConfig reads that of this guest.
func ReadConfig() (*Config, error) {
	text, err := os.ReadFile(ConfigPath)
	if err != nil {
		return nil, err
	}
	c := &Config{}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, fmt.Errorf("%s: %w", ConfigPath, err)
	}
	return c, nil
}

// Load inserts a module into the guest's kernel, after those that it needs. One that is there
// already is fine, and so is one that the initramfs does not have: it is built in, or what needs
// it will fail.
func (c *Config) Load(name string) error {
	i := slices.IndexFunc(c.Modules, func(m Module) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	m := c.Modules[i]
	for _, n := range m.Needs {
		if err := c.Load(n); err != nil {
			return err
		}
	}
	f, err := os.Open(m.Path())
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.FinitModule(int(f.Fd()), m.Params, 0)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load module %s %q: %w", name, m.Params, err)
	}
	return nil
}

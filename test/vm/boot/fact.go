package boot

import "regexp"

// Yes and No are the usual values of facts.
const (
	Yes = "yes"
	No  = "no"
)

var fact = regexp.MustCompile(`^fact: (.+?): ([^,]+)(?:, (.*))?$`)

// FormatFact is what a test logs of something that is so on its kernel, for the page
// about kernels. why may be empty. name has no colon with a space behind it, value no comma.
func FormatFact(name, value, why string) string {
	if why != "" {
		value += ", " + why
	}
	return "fact: " + name + ": " + value
}

// ParseFact reads a message that FormatFact has made.
func ParseFact(message string) (name, value, why string, ok bool) {
	m := fact.FindStringSubmatch(message)
	if m == nil {
		return "", "", "", false
	}
	return m[1], m[2], m[3], true
}

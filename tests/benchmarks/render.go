// Render text/template as often as it is told: the measure of what an engine in Python costs.
//
// A line "name count" on standard input is answered by a line with the nanoseconds of processor time that so many
// renderings took, collection of garbage included; "name 0" by the text, as one line of JSON.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"text/template"
)

type input struct {
	Dot    map[string]interface{}
	Shapes map[string]string
}

func main() {
	var given input
	file, err := os.Open(os.Args[1])
	check(err)
	decoder := json.NewDecoder(file)
	decoder.UseNumber()
	check(decoder.Decode(&given))
	dot := whole(given.Dot).(map[string]interface{})
	templates := map[string]*template.Template{}
	for name, text := range given.Shapes {
		templates[name] = template.Must(template.New(name).Funcs(functions(dot)).Parse(text))
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		name, number, _ := strings.Cut(lines.Text(), "\t")
		var count int
		fmt.Sscan(number, &count)
		var out bytes.Buffer
		if count == 0 {
			check(templates[name].Execute(&out, dot))
			check(json.NewEncoder(os.Stdout).Encode(out.String()))
			continue
		}
		runtime.GC()
		start := spent()
		for ; count > 0; count-- {
			out.Reset()
			check(templates[name].Execute(&out, dot))
		}
		fmt.Println(spent() - start)
	}
}

func spent() int64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// whole has the numbers of a decoded YAML or JSON as int, as templates know them.
func whole(value interface{}) interface{} {
	switch value := value.(type) {
	case json.Number:
		number, err := value.Int64()
		check(err)
		return int(number)
	case map[string]interface{}:
		for key, item := range value {
			value[key] = whole(item)
		}
	case []interface{}:
		for index, item := range value {
			value[index] = whole(item)
		}
	}
	return value
}

func number(value interface{}) int64 {
	switch value := value.(type) {
	case int:
		return int64(value)
	case int64:
		return value
	}
	panic("no number")
}

// functions are those of Sprig that the shapes call, with the types that they have there.
func functions(dot map[string]interface{}) template.FuncMap {
	return template.FuncMap{
		"add": func(numbers ...interface{}) int64 {
			var sum int64
			for _, one := range numbers {
				sum += number(one)
			}
			return sum
		},
		"mul": func(first interface{}, rest ...interface{}) int64 {
			product := number(first)
			for _, one := range rest {
				product *= number(one)
			}
			return product
		},
		"sub":     func(a, b interface{}) int64 { return number(a) - number(b) },
		"mod":     func(a, b interface{}) int64 { return number(a) % number(b) },
		"lower":   strings.ToLower,
		"upper":   strings.ToUpper,
		"trim":    strings.TrimSpace,
		"replace": func(old, new, text string) string { return strings.ReplaceAll(text, old, new) },
		"repeat":  func(count int, text string) string { return strings.Repeat(text, count) },
		"lookup": func(path string) (interface{}, error) {
			var value interface{} = dot
			for _, key := range strings.Split(path, ".") {
				container, ok := value.(map[string]interface{})
				if !ok {
					return nil, fmt.Errorf("no %s", path)
				}
				value = container[key]
			}
			return value, nil
		},
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

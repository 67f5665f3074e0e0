// Runs one verb of a network list with libcni, as cnitool does, but with a result cache of its own.
//
//	libcni-run add|check|del <list> <network namespace> <container id> <cache directory> [<capability arguments>]
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(verb, file, netns, id, cache string, more []string) error {
	list, err := libcni.ConfListFromFile(file)
	if err != nil {
		return err
	}
	var capabilities map[string]interface{}
	if len(more) > 0 {
		if err := json.Unmarshal([]byte(more[0]), &capabilities); err != nil {
			return err
		}
	}
	cni := libcni.NewCNIConfigWithCacheDir(filepath.SplitList(os.Getenv("CNI_PATH")), cache, nil)
	runtime := &libcni.RuntimeConf{ContainerID: id, NetNS: netns, IfName: "eth0", CapabilityArgs: capabilities}
	switch verb {
	case "add":
		result, err := cni.AddNetworkList(context.Background(), list, runtime)
		if err != nil {
			return err
		}
		return result.Print()
	case "check":
		return cni.CheckNetworkList(context.Background(), list, runtime)
	default:
		return cni.DelNetworkList(context.Background(), list, runtime)
	}
}

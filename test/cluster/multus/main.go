// Plays multus 3.9, of which Debian has no package, as far as it takes time: in front of one list it reads the pod, calls the list's plugins with
// libcni, and writes the pod's `network-status`. It updates nothing at DEL and looks for no further network, as the real one does, so it is the
// faster of the two.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
)

type config struct {
	Server        string                 `json:"server"`
	Authority     []byte                 `json:"authority"`
	TokenFile     string                 `json:"tokenFile"`
	Delegates     []json.RawMessage      `json:"delegates"`
	RuntimeConfig map[string]interface{} `json:"runtimeConfig"`
}

const notes = "/var/lib/cni/multus"

func main() {
	if err := run(os.Getenv("CNI_COMMAND"), os.Getenv("CNI_CONTAINERID")); err != nil {
		types.NewError(types.ErrInternal, "Cannot play multus", err.Error()).Print()
		os.Exit(1)
	}
}

func run(verb, id string) error {
	if verb == "VERSION" {
		fmt.Println(`{"cniVersion":"1.0.0","supportedVersions":["0.3.1","0.4.0","1.0.0"]}`)
		return nil
	}
	var conf config
	if err := json.NewDecoder(os.Stdin).Decode(&conf); err != nil {
		return err
	}
	list, err := libcni.ConfListFromBytes(conf.Delegates[0])
	if err != nil {
		return err
	}
	cni := libcni.NewCNIConfigWithCacheDir(filepath.SplitList(os.Getenv("CNI_PATH")), notes, nil)
	runtime := &libcni.RuntimeConf{ContainerID: id, NetNS: os.Getenv("CNI_NETNS"), IfName: os.Getenv("CNI_IFNAME"),
		CapabilityArgs: conf.RuntimeConfig}
	note := filepath.Join(notes, id)
	pod, err := ask(conf, "GET", "", nil)
	if verb == "DEL" {
		// The pod may be gone.
		os.Remove(note)
		return cni.DelNetworkList(context.Background(), list, runtime)
	}
	if err != nil || verb != "ADD" {
		return err
	}
	var known struct{ Metadata struct{ Annotations map[string]string } }
	if err := json.Unmarshal(pod, &known); err != nil {
		return err
	}
	if err := os.MkdirAll(notes, 0700); err != nil {
		return err
	}
	if err := os.WriteFile(note, conf.Delegates[0], 0600); err != nil {
		return err
	}
	result, err := cni.AddNetworkList(context.Background(), list, runtime)
	if err != nil {
		return err
	}
	if err := tell(conf, list.Name, runtime.IfName, result); err != nil {
		return err
	}
	return result.Print()
}

func tell(conf config, network, ifname string, result types.Result) error {
	full, err := current.NewResultFromResult(result)
	if err != nil {
		return err
	}
	ips := []string{}
	for _, one := range full.IPs {
		ips = append(ips, one.Address.IP.String())
	}
	status := []interface{}{map[string]interface{}{"name": network, "interface": ifname, "ips": ips, "default": true}}
	text, err := json.Marshal(status)
	if err != nil {
		return err
	}
	annotations := map[string]string{"k8s.v1.cni.cncf.io/network-status": string(text)}
	body, err := json.Marshal(map[string]interface{}{"metadata": map[string]interface{}{"annotations": annotations}})
	if err != nil {
		return err
	}
	_, err = ask(conf, "PATCH", "/status", body)
	return err
}

func ask(conf config, method, below string, body []byte) ([]byte, error) {
	args := map[string]string{}
	for _, pair := range strings.Split(os.Getenv("CNI_ARGS"), ";") {
		name, value, _ := strings.Cut(pair, "=")
		args[name] = value
	}
	token, err := os.ReadFile(conf.TokenFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(conf.Authority)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	at := fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s%s", conf.Server, args["K8S_POD_NAMESPACE"], args["K8S_POD_NAME"], below)
	request, err := http.NewRequest(method, at, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	request.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s", method, at, response.Status)
	}
	return text, err
}

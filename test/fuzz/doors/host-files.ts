// Are the node's files that others write handled (configurations of runtimes, a kubeconfig), and our notes beside executables?
import fs from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import type { Conflist } from '../../../src/chain/config/conflist.ts';
import { findManifest, MANIFEST_NAME } from '../../../src/cli/install/files.ts';
import { listSwaps, placeOf } from '../../../src/cli/install/swap.ts';
import { findMismatches, readConfigured } from '../../../src/cli/runtimes/configured.ts';
import { choose, RUNTIMES, readCandidates } from '../../../src/cli/runtimes/rules.ts';
import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import {
  deviceInfoArg,
  placeDeviceInfo,
  readDeviceInfo,
  removeDeviceInfo,
} from '../../../src/delegate/devices.ts';
import { listPodDevices } from '../../../src/delegate/kubelet.ts';
import { door } from '../door.ts';
import { ground } from '../ground.ts';
import { damagedJsonText, damagedText } from '../mutate.ts';
import { answersOrComplains, checkRefusal } from '../promise.ts';
import { LIST_TEXTS, LISTS } from '../samples.ts';

const CONTAINERD = `version = 2
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/opt/cni/bin"
  conf_dir = "/etc/cni/net.d"
  max_conf_num = 1
`;
const CRIO = `[crio.network]
network_dir = "/etc/cni/net.d/"
plugin_dirs = ["/opt/cni/bin", '/usr/lib/cni']
cni_default_network = "podnet"
`;

/** What an administrator configures for containerd, CRI-O and Podman. */
export const runtimeConfig = door({
  name: 'configurations of runtimes',
  weight: 2,
  arbitrary: fc.tuple(
    fc.constantFrom('containerd/config.toml', 'crio/crio.conf', 'containers/containers.conf'),
    damagedText([CONTAINERD, CRIO, '[network]\nnetwork_config_dir = "/a"\ncni_plugin_dirs = []\n']),
  ),
  run([name, text]) {
    const etc = ground().dir('etc');
    const file = path.join(etc, name);
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(file, text);
    findMismatches(readConfigured(etc), '/etc/cni/net.d', '/opt/cni/bin');
    fs.rmSync(file);
  },
});

/** A configuration directory, from which runtimes choose. */
export const candidates = door({
  name: 'directory of lists',
  weight: 1.5,
  arbitrary: fc.dictionary(
    fc.constantFrom('10-a.conflist', '20-b.conf', '30-c.json', '40-d.txt', '.hidden.conflist'),
    fc.oneof(damagedJsonText(LISTS), damagedText(LIST_TEXTS)),
    { maxKeys: 3 },
  ),
  async run(files) {
    const dir = ground().dir('candidates');
    for (const [name, text] of Object.entries(files)) fs.writeFileSync(path.join(dir, name), text);
    const found = await readCandidates(dir);
    for (const runtime of RUNTIMES) choose(runtime, found);
    if (found.length !== Object.keys(files).length) throw new Error(`it sees ${found.length} files`);
    fs.rmSync(dir, { recursive: true });
  },
});

const SWAP = { kept: 'bridge.1', before: 'sha256:a', after: 'sha256:b', from: '/tmp/bridge', time: 't' };

/** What installation and swaps recorded. */
export const notes = door({
  name: 'notes of installation and swaps',
  weight: 2,
  arbitrary: damagedJsonText([
    { catena: '1', executables: { bridge: ['a'] }, configurations: {} },
    { catena: '1', swaps: [SWAP] },
  ]),
  seeds: [
    // Undoing a swap would have replaced an executable by an arbitrary file.
    JSON.stringify({ catena: '1', swaps: [{ ...SWAP, kept: '../../ESCAPE' }] }),
  ],
  run(text) {
    const bin = ground().dir('notes');
    const target = path.join(bin, 'bridge');
    const { dir, note } = placeOf(target);
    fs.mkdirSync(dir, { recursive: true });
    fs.writeFileSync(note, text);
    fs.writeFileSync(path.join(bin, MANIFEST_NAME), text);
    answersOrComplains(() => findManifest(bin));
    const swaps = answersOrComplains(() => listSwaps(target)) ?? [];
    const outside = swaps.find(({ kept }) => path.dirname(path.resolve(dir, kept)) !== dir);
    if (outside) throw new Error(`it would remove "${outside.kept}"`);
  },
});

const CHECKPOINT = {
  Data: {
    PodDeviceEntries: [
      {
        PodUID: 'u',
        ContainerName: 'c',
        ResourceName: 'a/b',
        DeviceIDs: { '-1': ['d2', 'd1'] },
        AllocResp: '',
      },
      { PodUID: 'u', ContainerName: 'a', ResourceName: 'a/b', DeviceIDs: ['d0'] },
    ],
    RegisteredDevices: {},
  },
  Checksum: 1,
};
const INFO = { type: 'pci', version: '1.1.0', pci: { 'pci-address': '0000:01:02.2' } };

/** The same text as a kubelet's checkpoint, and as information about a device. */
export const kubeletNotes = door({
  name: 'notes of the kubelet and of device plugins',
  weight: 1,
  arbitrary: damagedJsonText([CHECKPOINT, INFO]),
  seeds: ['[]', 'null', '{"Data":{"PodDeviceEntries":[null]}}', '{"type":"pci"}'],
  async run(text) {
    const dir = ground().dir('kubelet');
    const put = (file: string) => {
      fs.mkdirSync(path.dirname(file), { recursive: true });
      fs.writeFileSync(file, text);
    };
    put(path.join(dir, 'device-plugins/kubelet_internal_checkpoint'));
    put(path.join(dir, 'dp/r-d-device.json'));
    try {
      const found = await listPodDevices(dir, { namespace: 'n', name: 'p', uid: 'u' });
      if (found.some(({ id }) => typeof id !== 'string')) throw new Error('a device has no name');
    } catch (error) {
      checkRefusal(error);
    }
    const list = { name: 'net' } as Conflist;
    const id = { containerId: 'c', netns: '', ifname: 'net1' };
    const attachment = { ...id, capabilityArgs: deviceInfoArg(dir, list, id) };
    const network = { list, attachment, device: { resource: 'r', id: 'd' } };
    answersOrComplains(() => placeDeviceInfo(network));
    const info = answersOrComplains(() => readDeviceInfo(network));
    if (info !== undefined && typeof info.type !== 'string') throw new Error('information without a type');
    removeDeviceInfo(network);
  },
});

const KUBECONFIG = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", certificate-authority-data: "YQ=="}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`;

/** The location of a cluster, and the credentials for it. */
export const kubeconfig = door({
  name: 'kubeconfig',
  weight: 0.3,
  arbitrary: damagedText([KUBECONFIG]),
  seeds: [
    KUBECONFIG.replace('https://127.0.0.1:1', 'nowhere'),
    KUBECONFIG.replace('"https://127.0.0.1:1"', '7'),
    // A header cannot contain it: the timer of the request, which was never made, later ended the process.
    KUBECONFIG.replace('token: t', 'token: "a\\nb"'),
  ],
  async run(text) {
    const { openApiServer } = await import('../../../src/delegate/api-server.ts');
    const file = path.join(ground().dir('kube'), 'config');
    fs.writeFileSync(file, text);
    try {
      await openApiServer({ kubeconfig: file, timeoutMs: 50 }).ask('GET', 'api/v1/pods');
    } catch (error) {
      // Errors have the messages of the libraries that read the file and make the request.
      const codes: readonly number[] = [ErrorCode.invalidConfig, ErrorCode.tryAgainLater];
      if (!(error instanceof CniError && codes.includes(error.code))) throw error;
    }
  },
});

import { afterAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { findMismatches, readConfigured } from '../../../../src/cli/runtimes/configured.ts';

const etc = fs.mkdtempSync(join(tmpdir(), 'cat-etc-'));
afterAll(() => fs.rmSync(etc, { recursive: true }));

function write(file: string, ...lines: string[]): void {
  fs.mkdirSync(dirname(join(etc, file)), { recursive: true });
  fs.writeFileSync(join(etc, file), `${lines.join('\n')}\n`);
}

describe('readConfigured()', () => {
  test('returns nothing when nothing is configured', () => {
    expect(readConfigured('/nonexistent')).toEqual([]);
  });

  test.each([
    ['io.containerd.grpc.v1.cri', 'bin_dir = "/usr/lib/cni"'],
    ['io.containerd.cri.v1.runtime', 'bin_dirs = ["/usr/lib/cni"]'],
  ])('reads containerd with its plugin %s', (plugin, bin) => {
    const table = `[plugins."${plugin}".cni]`;
    write('containerd/config.toml', 'version = 2', table, bin, 'conf_dir = "/c/net.d"', 'max_conf_num = 3');
    expect(readConfigured(etc)[0]).toEqual({
      runtime: 'containerd',
      file: join(etc, 'containerd/config.toml'),
      confDir: '/c/net.d',
      binDirs: ['/usr/lib/cni'],
      maxConfNum: 3,
    });
  });

  test('reads CRI-O with its drop-ins, the last one first, and podman', () => {
    write('crio/crio.conf', '[crio.network]', 'network_dir = "/a"', 'plugin_dirs = ["/p", ""]');
    write(
      'crio/crio.conf.d/10-x.conf',
      '[crio.network]',
      'network_dir = "/b"',
      'cni_default_network = "blue"',
    );
    write('crio/crio.conf.d/20-broken.conf', '[crio');
    write('containers/containers.conf', '[network]', 'network_backend = "cni"', 'cni_plugin_dirs = ["/q"]');
    const [, crio, podman] = readConfigured(etc);
    expect(crio).toMatchObject({ confDir: '/b', binDirs: ['/p'], defaultNetwork: 'blue' });
    expect(podman).toMatchObject({ runtime: 'podman', binDirs: ['/q'] });
    expect(podman).not.toHaveProperty('confDir');
  });
});

test('findMismatches() reports which runtime uses another directory, and which file sets it', () => {
  const file = '/etc/crio/crio.conf';
  const crio = { runtime: 'CRI-O', file, confDir: '/a/', binDirs: ['/p', '/opt/cni/bin/'] } as const;
  expect(findMismatches([crio], '/a', '/opt/cni/bin')).toEqual([]);
  expect(findMismatches([crio], '/b', '/other')).toEqual([
    `CRI-O reads "/a/" instead of "/b", as "${file}" says`,
    `CRI-O looks for plugins in "/p:/opt/cni/bin/", as "${file}" says, and not in "/other"`,
  ]);
});

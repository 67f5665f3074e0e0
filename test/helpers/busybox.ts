// Which image do runtimes start on a machine without access to a registry?

import crypto from 'node:crypto';
import fs from 'node:fs';
import { runOk } from './command.ts';
import { runtimeProgram } from './runtimes.ts';

/** Name of the image. Its command sleeps, and `/bin` contains what containers are asked to run. */
export const IMAGE = 'localhost/catena/busybox:1';

const APPLETS = ['sh', 'sleep', 'ip', 'ping', 'wget', 'cat', 'httpd'];
const ARCHITECTURES: Readonly<Record<string, string>> = { x64: 'amd64', arm64: 'arm64' };

/** Writes an archive for `podman load` and `ctr image import`, with one static executable. */
export async function writeImage(dir: string): Promise<string> {
  const files = `${dir}/image`;
  fs.mkdirSync(`${files}/rootfs/bin`, { recursive: true });
  for (const name of ['etc', 'tmp']) fs.mkdirSync(`${files}/rootfs/${name}`);
  fs.copyFileSync(runtimeProgram('busybox'), `${files}/rootfs/bin/busybox`);
  for (const name of APPLETS) fs.symlinkSync('busybox', `${files}/rootfs/bin/${name}`);
  await runOk(['tar', '-C', `${files}/rootfs`, '-cf', `${files}/layer.tar`, '.']);
  const layer = crypto
    .createHash('sha256')
    .update(fs.readFileSync(`${files}/layer.tar`))
    .digest('hex');
  const config = {
    architecture: ARCHITECTURES[process.arch],
    os: 'linux',
    config: { Cmd: ['/bin/sleep', 'infinity'], Env: ['PATH=/bin'] },
    rootfs: { type: 'layers', diff_ids: [`sha256:${layer}`] },
  };
  const manifest = [{ Config: 'config.json', RepoTags: [IMAGE], Layers: ['layer.tar'] }];
  fs.writeFileSync(`${files}/config.json`, JSON.stringify(config));
  fs.writeFileSync(`${files}/manifest.json`, JSON.stringify(manifest));
  const archive = `${dir}/image.tar`;
  await runOk(['tar', '-C', files, '-cf', archive, 'manifest.json', 'config.json', 'layer.tar']);
  return archive;
}

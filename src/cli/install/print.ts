// Which files run Catena under systemd or Kubernetes, build it into an image, or watch it?

import { crds } from './crds.ts';
import { daemonSet } from './daemon-set.ts';
import { alertRules, board } from './monitoring.ts';
import type { Printable, PrintOptions } from './print-options.ts';
import { renderUnits } from './units.ts';

/** The text of one of them. */
export function printFor(what: Printable, options: PrintOptions): string {
  const texts = {
    systemd: systemdUnits,
    daemonset: daemonSet,
    containerfile,
    crds,
    alerts: alertRules,
    board,
  };
  return texts[what](options);
}

function systemdUnits({ binDir }: PrintOptions): string {
  return renderUnits('/etc/systemd/system', binDir)
    .map(({ path, text }) => `# ${path}\n${text}`)
    .join('\n');
}

function containerfile({ version, image, home }: PrintOptions): string {
  return `# podman build --tag ${image} --file Containerfile ${home}
FROM docker.io/library/debian:stable-slim
LABEL org.opencontainers.image.title="catena" org.opencontainers.image.version="${version}"
COPY catena catena-core /usr/local/bin/
ENTRYPOINT ["/usr/local/bin/catena"]
`;
}

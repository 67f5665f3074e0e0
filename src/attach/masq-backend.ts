// Which packet filters can masquerade, and which one does a configuration select?

/** Their names, the default first. */
const MASQ_BACKENDS = ['nftables', 'iptables'] as const;

/** One of {@link MASQ_BACKENDS}. */
export type MasqBackend = (typeof MASQ_BACKENDS)[number];

/** The packet filter of that name; the default without a name or for a name that {@link findBackendProblem} refuses. */
export function backendOf({ ipMasqBackend }: { readonly ipMasqBackend?: string | undefined }): MasqBackend {
  return MASQ_BACKENDS.find(name => name === ipMasqBackend) ?? MASQ_BACKENDS[0];
}

/** What is wrong with the option's value, or undefined. */
export function findBackendProblem(ipMasqBackend: string | undefined): string | undefined {
  if (ipMasqBackend === undefined || MASQ_BACKENDS.some(name => name === ipMasqBackend)) return undefined;
  return `"ipMasqBackend" is "${ipMasqBackend}", expected "${MASQ_BACKENDS.join('" or "')}"`;
}

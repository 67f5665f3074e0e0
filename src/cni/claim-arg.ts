// How does an IPAM plugin learn for which claim of the cluster an attachment is?

/** The member of `args.cni` in which the delegate runner names the IPAMClaim: `namespace`, `name`, `uid`. */
export const CLAIM_ARG = 'catena.cni.cncf.io/claim';

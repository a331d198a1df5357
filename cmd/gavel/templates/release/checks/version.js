(data) => ({
  valid: /^[0-9]+\.[0-9]+\.[0-9]+$/.test(data.version),
  reason: 'Give the version as three numbers, such as 1.4.0.',
})

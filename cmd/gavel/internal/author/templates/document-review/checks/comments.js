// data is what the action brings, context what the instance has so far.
(data, context) => ({
  valid: data.comments.length >= 20,
  reason: 'Say in a sentence what was checked.',
})

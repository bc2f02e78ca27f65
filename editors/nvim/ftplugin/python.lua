if vim.fn.has('nvim-0.11') == 1 then -- of an older one plugin/orbit.lua has said so
  require('orbit.server').start_first(vim.api.nvim_get_current_buf())
end

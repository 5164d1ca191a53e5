"""Compares specjax with other engines on the same weights; not part of the installed
package.
"""
